/* Puts from memory relative to MPI_BOTTOM, for which Open MPI's osc/pt2pt passes null buffers. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    enum { COUNT = 4096 };
    static int from[COUNT], window[COUNT];
    int rank, ranks, one = COUNT;
    MPI_Aint address;
    MPI_Datatype type;
    MPI_Win win;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    memset(from, rank + 1, sizeof from);
    MPI_Get_address(from, &address);
    MPI_Type_create_hindexed(1, &one, &address, MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_Win_create(window, sizeof window, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_fence(0, win);
    MPI_Put(MPI_BOTTOM, 1, type, (rank + 1) % ranks, 0, COUNT, MPI_INT, win);
    MPI_Win_fence(0, win);
    printf("put\n");
    MPI_Win_free(&win);
    MPI_Finalize();
    return 0;
}
