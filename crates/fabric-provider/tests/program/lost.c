/* Two ranks exchange messages until rank 1 kills or stops itself (argument: the signal's number). Rank 0 has MPI
   return errors, ends rank 1 where that is stopped, and says after which time it knew. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(int argc, char **argv)
{
    static char bytes[100000];
    int rank, error = 0, other = (int)getpid();
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Sendrecv_replace(&other, 1, MPI_INT, !rank, 1, !rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    double last = now();
    for (int round = 0; error == MPI_SUCCESS; round++) {
        int count = round % 2 ? (int)sizeof bytes : 8;
        last = now();
        if (rank == 1 && round == 1000)
            kill(getpid(), atoi(argv[1]));
        if (rank == 0) {
            error = MPI_Send(bytes, count, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
            if (error == MPI_SUCCESS)
                error = MPI_Recv(bytes, count, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            error = MPI_Recv(bytes, count, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (error == MPI_SUCCESS)
                error = MPI_Send(bytes, count, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
        }
    }
    printf("rank %d knew after %.1f s\n", rank, now() - last);
    fflush(stdout);
    if (rank == 0)
        kill(other, SIGKILL);
    _exit(3);
}
