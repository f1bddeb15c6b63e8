/* One-sided operations between all ranks, checked: puts, gets, accumulates, fetches and swaps, short and long, within
   fences, within locks of one target, and with many operations under way. Prints "correct: N ranks". Without an argument
   "swap" there is no compare and swap: osc/rdma of Open MPI 4.1.4 follows a null pointer there, over btl/ofi. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 1 << 17, ROUNDS = 20, FETCHES = 500 };

static int rank, ranks, wrong, swaps;

static void check(int is_right, const char *what, long place)
{
    if (!is_right && wrong++ < 5)
        fprintf(stderr, "rank %d: wrong %s at %ld\n", rank, what, place);
}

/* A window of this many bytes, all zero. Open MPI would put an allocated one into memory of its own. */
static void *opened(size_t bytes, int unit, MPI_Win *win)
{
    void *own = calloc(1, bytes);
    MPI_Win_create(own, (MPI_Aint)bytes, unit, MPI_INFO_NULL, MPI_COMM_WORLD, win);
    return own;
}

static long value(int from, int round, long at)
{
    return (long)from * 1000003 + (long)round * 7919 + at;
}

/* Each rank puts into its right neighbour's window and gets it back. */
static void puts_and_gets(void)
{
    static const long lengths[] = {0, 1, 7, 512, 513, 4096, 4097, 100000};
    long *out = malloc(WORDS * sizeof *out), *back = malloc(WORDS * sizeof *back);
    MPI_Win win;
    long *own = opened(WORDS * sizeof *own, sizeof *own, &win);
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    for (int round = 0; round < ROUNDS; round++) {
        long length = lengths[round % 8], start = round % 5;
        memset(own, 0, WORDS * sizeof *own);
        for (long at = 0; at < length; at++)
            out[at] = value(rank, round, at);
        MPI_Win_fence(0, win);
        MPI_Put(out, (int)length, MPI_LONG, right, start, (int)length, MPI_LONG, win);
        MPI_Win_fence(0, win);
        for (long at = 0; at < length; at++)
            check(own[start + at] == value(left, round, at), "put", at);
        check(own[start + length] == 0, "end of a put", length);
        memset(back, 0, length * sizeof *back);
        MPI_Get(back, (int)length, MPI_LONG, right, start, (int)length, MPI_LONG, win);
        MPI_Win_fence(0, win);
        for (long at = 0; at < length; at++)
            check(back[at] == value(rank, round, at), "get", at);
    }
    MPI_Win_free(&win);
    free(own);
    free(out);
    free(back);
}

/* All ranks change the window of rank 0. */
static void accumulates(void)
{
    MPI_Win win, floats;
    long *own = opened(64 * sizeof *own, sizeof *own, &win);
    double *sums = opened(1000 * sizeof *sums, sizeof *sums, &floats);
    long one = 1, before, last = -1, most = 0;
    MPI_Win_lock_all(0, win);
    for (int count = 0; count < FETCHES; count++) {
        MPI_Fetch_and_op(&one, &before, MPI_LONG, 0, 0, MPI_SUM, win);
        MPI_Win_flush(0, win);
        check(before > last, "fetch", before);
        last = before;
    }
    most = last;
    /* A lock by compare and swap, and a counter that it protects. */
    for (int count = 0; count < 50 && swaps; count++) {
        long mine = rank + 1, none = 0, found, seen;
        do {
            MPI_Compare_and_swap(&mine, &none, &found, MPI_LONG, 0, 1, win);
            MPI_Win_flush(0, win);
        } while (found != 0);
        MPI_Get(&seen, 1, MPI_LONG, 0, 2, 1, MPI_LONG, win);
        MPI_Win_flush(0, win);
        seen++;
        MPI_Put(&seen, 1, MPI_LONG, 0, 2, 1, MPI_LONG, win);
        MPI_Win_flush(0, win);
        MPI_Compare_and_swap(&none, &mine, &found, MPI_LONG, 0, 1, win);
        MPI_Win_flush(0, win);
        check(found == mine, "unlock", found);
    }
    MPI_Win_unlock_all(win);
    double *parts = malloc(1000 * sizeof *parts);
    for (int at = 0; at < 1000; at++)
        parts[at] = at + rank;
    MPI_Win_fence(0, floats);
    for (int count = 0; count < 10; count++)
        MPI_Accumulate(parts, 1000, MPI_DOUBLE, 0, 0, 1000, MPI_DOUBLE, MPI_SUM, floats);
    MPI_Win_fence(0, floats);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        check(own[0] == (long)FETCHES * ranks, "sum of fetches", own[0]);
        check(own[2] == (swaps ? 50L * ranks : 0), "counter in a lock", own[2]);
        for (int at = 0; at < 1000; at++)
            check(sums[at] == 10.0 * (ranks * at + ranks * (ranks - 1) / 2), "accumulate", at);
    }
    long highest;
    MPI_Allreduce(&most, &highest, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
    check(highest == (long)FETCHES * ranks - 1, "last fetch", highest);
    free(parts);
    MPI_Win_free(&floats);
    MPI_Win_free(&win);
    free(own);
    free(sums);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    swaps = argc > 1 && strcmp(argv[1], "swap") == 0;
    puts_and_gets();
    accumulates();
    int all;
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        printf("correct: %d ranks\n", ranks);
    MPI_Finalize();
    return all != 0;
}
