/* Bursts of short messages from rank 0 to rank 1, checked in order. After the last one rank 0 computes for two seconds without
 * a call; rank 1 says how long the latest message took, in microseconds. */
#include <mpi.h>
#include <stdio.h>
#include <time.h>

enum { BURST = 64, ROUNDS = 200, LAST = 60 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void send_bursts(void) {
    long values[BURST];
    MPI_Request requests[BURST];
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BURST; i++) {
            values[i] = (long)round * BURST + i;
            MPI_Isend(&values[i], 1, MPI_LONG, 1, 0, MPI_COMM_WORLD, &requests[i]);
        }
        MPI_Waitall(BURST, requests, MPI_STATUSES_IGNORE);
        MPI_Recv(NULL, 0, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    double sent = 0;
    for (int i = 0; i < LAST; i++) {
        sent = now();
        MPI_Send(&sent, 1, MPI_DOUBLE, 1, 2, MPI_COMM_WORLD);
    }
    while (now() < sent + 2) {
    }
}

static int take_bursts(void) {
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BURST; i++) {
            long value;
            MPI_Recv(&value, 1, MPI_LONG, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (value != (long)round * BURST + i) {
                fprintf(stderr, "round %d, message %d: %ld came\n", round, i, value);
                return 1;
            }
        }
        MPI_Send(NULL, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    }
    double latest = 0;
    for (int i = 0; i < LAST; i++) {
        double sent;
        MPI_Recv(&sent, 1, MPI_DOUBLE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        double took = now() - sent;
        latest = took > latest ? took : latest;
    }
    printf("latest %ld\n", (long)(latest * 1e6));
    return 0;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int failed = 0;
    if (rank == 0) {
        send_bursts();
    } else {
        failed = take_bursts();
    }
    MPI_Finalize();
    return failed;
}
