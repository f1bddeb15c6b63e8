/* A job that uses MPI as programs do and checks every byte: messages of all sizes, all to all, truncation,
   probes, any source, any tag, synchronous and buffered sends, many at once. Ends with "correct" on rank 0. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            fprintf(stderr, "rank %d: line %d: %s\n", rank, __LINE__, #condition);                \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                         \
        }                                                                                         \
    } while (0)

static unsigned char byte_of(int sender, int tag, size_t at)
{
    return (unsigned char)(at * 31 + at / 251 + (size_t)sender * 7 + (size_t)tag * 13 + 1);
}

static void fill(unsigned char *bytes, size_t count, int sender, int tag)
{
    for (size_t at = 0; at < count; at++)
        bytes[at] = byte_of(sender, tag, at);
}

static void check(const unsigned char *bytes, size_t count, int sender, int tag)
{
    for (size_t at = 0; at < count; at++)
        CHECK(bytes[at] == byte_of(sender, tag, at));
}

/* There and back between rank 0 and each other one, from 0 bytes to 1 MiB and around every limit. */
static void ping_pong(int rounds)
{
    static const int sizes[] = {0,     1,     8,     31,    32,     33,     1000,   1390,   1472,  4095,
                                4096,  4097,  8192,  16384, 32767,  32768,  32769,  65536,  99999, 131072,
                                262144, 524288, 1048575, 1048576};
    unsigned char *out = malloc(1 << 20), *in = malloc(1 << 20);
    for (size_t each = 0; each < sizeof sizes / sizeof *sizes; each++) {
        int count = sizes[each];
        for (int round = 0; round < rounds; round++)
            for (int other = 1; other < size; other++) {
                MPI_Status status;
                int came, tag = 100 + round;
                if (rank == 0) {
                    fill(out, (size_t)count, 0, tag);
                    MPI_Send(out, count, MPI_BYTE, other, tag, MPI_COMM_WORLD);
                    memset(in, 0, (size_t)count);
                    MPI_Recv(in, 1 << 20, MPI_BYTE, other, tag, MPI_COMM_WORLD, &status);
                    MPI_Get_count(&status, MPI_BYTE, &came);
                    CHECK(came == count && status.MPI_SOURCE == other && status.MPI_TAG == tag);
                    check(in, (size_t)count, other, tag);
                } else if (rank == other) {
                    memset(in, 0, (size_t)count);
                    MPI_Recv(in, count, MPI_BYTE, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                    check(in, (size_t)count, 0, tag);
                    fill(out, (size_t)count, other, tag);
                    MPI_Send(out, count, MPI_BYTE, 0, tag, MPI_COMM_WORLD);
                }
            }
    }
    free(out);
    free(in);
}

static void all_to_all(int count)
{
    unsigned char *out = malloc((size_t)count * (size_t)size), *in = malloc((size_t)count * (size_t)size);
    for (int other = 0; other < size; other++)
        fill(out + (size_t)count * (size_t)other, (size_t)count, rank, other);
    MPI_Alltoall(out, count, MPI_BYTE, in, count, MPI_BYTE, MPI_COMM_WORLD);
    for (int other = 0; other < size; other++)
        check(in + (size_t)count * (size_t)other, (size_t)count, other, rank);
    free(out);
    free(in);
}

/* Every rank sends to every rank, itself too, many at once; they are taken from anybody with any tag. */
static void any_source(int count, int length)
{
    unsigned char *out = malloc((size_t)length), *in = malloc((size_t)length);
    MPI_Request *requests = malloc(sizeof *requests * (size_t)count * (size_t)size);
    int *next = calloc((size_t)size, sizeof *next), sends = 0;
    fill(out, (size_t)length, rank, 0);
    for (int number = 0; number < count; number++)
        for (int other = 0; other < size; other++)
            MPI_Isend(out, length, MPI_BYTE, other, number, MPI_COMM_WORLD, &requests[sends++]);
    for (int number = 0; number < count * size; number++) {
        MPI_Status status;
        int came;
        MPI_Recv(in, length, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &came);
        CHECK(came == length && status.MPI_TAG == next[status.MPI_SOURCE]++);
        check(in, (size_t)length, status.MPI_SOURCE, 0);
    }
    MPI_Waitall(sends, requests, MPI_STATUSES_IGNORE);
    free(out);
    free(in);
    free(requests);
    free(next);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void truncation(int length)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    unsigned char *out = malloc((size_t)length), *in = calloc(1, (size_t)length);
    MPI_Request request;
    MPI_Status status;
    fill(out, (size_t)length, rank, 5);
    MPI_Irecv(in, length / 2, MPI_BYTE, left, 5, MPI_COMM_WORLD, &request);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Request sent;
    MPI_Isend(out, length, MPI_BYTE, right, 5, MPI_COMM_WORLD, &sent);
    int class, code = MPI_Wait(&request, &status);
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_TRUNCATE);
    for (int at = length / 2; at < length; at++)
        CHECK(in[at] == 0);
    MPI_Wait(&sent, MPI_STATUS_IGNORE);
    free(out);
    free(in);
}

static void probes(int length)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, flag, came;
    unsigned char *out = malloc((size_t)length), *in = malloc((size_t)length);
    MPI_Request request;
    MPI_Status status;
    MPI_Message message;
    MPI_Iprobe(MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, &flag, &status);
    CHECK(!flag);
    fill(out, (size_t)length, rank, 9);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Isend(out, length, MPI_BYTE, right, 9, MPI_COMM_WORLD, &request);
    MPI_Probe(MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &came);
    CHECK(came == length && status.MPI_SOURCE == left);
    MPI_Recv(in, length, MPI_BYTE, left, 9, MPI_COMM_WORLD, &status);
    check(in, (size_t)length, left, 9);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Isend(out, length, MPI_BYTE, right, 9, MPI_COMM_WORLD, &request);
    MPI_Mprobe(left, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status);
    MPI_Iprobe(left, 9, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    CHECK(!flag);
    memset(in, 0, (size_t)length);
    MPI_Mrecv(in, length, MPI_BYTE, &message, &status);
    check(in, (size_t)length, left, 9);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Ssend_init(out, length, MPI_BYTE, right, 10, MPI_COMM_WORLD, &request);
    MPI_Start(&request);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    CHECK(!flag);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Recv(in, length, MPI_BYTE, left, 10, MPI_COMM_WORLD, &status);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
    MPI_Irecv(in, length, MPI_BYTE, left, 1234, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &flag);
    CHECK(flag);
    free(out);
    free(in);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* A column of a matrix: memory in many pieces. */
static void columns(int rows)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    double *matrix = malloc(sizeof *matrix * (size_t)rows * 8), *in = malloc(sizeof *in * (size_t)rows);
    MPI_Datatype column;
    for (int at = 0; at < rows * 8; at++)
        matrix[at] = rank * 1e6 + at;
    MPI_Type_vector(rows, 1, 8, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);
    MPI_Sendrecv(matrix + 3, 1, column, right, 3, in, rows, MPI_DOUBLE, left, 3, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    for (int row = 0; row < rows; row++)
        CHECK(in[row] == left * 1e6 + row * 8 + 3);
    MPI_Type_free(&column);
    free(matrix);
    free(in);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int rounds = argc > 1 ? atoi(argv[1]) : 2;
    all_to_all(100);
    if (rank == 0) {
        printf("began\n");
        fflush(stdout);
    }
    ping_pong(rounds);
    static const int counts[] = {1, 100, 5000, 40000, 200000};
    for (size_t each = 0; each < sizeof counts / sizeof *counts; each++)
        for (int round = 0; round < rounds; round++)
            all_to_all(counts[each]);
    any_source(200, 24);
    any_source(20, 20000);
    any_source(5, 100000);
    truncation(100);
    truncation(20000);
    truncation(500000);
    probes(16);
    probes(30000);
    probes(300000);
    columns(10);
    columns(20000);
    double sum = 0, mine = rank + 1;
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == size * (size + 1) / 2.0);
    if (rank == 0)
        printf("correct: %d ranks\n", size);
    MPI_Finalize();
    return 0;
}
