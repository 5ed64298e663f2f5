/* What two ranks of MPI can do over what carries them: latency, message rate and bandwidth, or a small application. Every byte
 * that arrives is checked. Prints `name value`, one per line; times in seconds.
 *
 *     exchange [SCALE]
 *     exchange SECONDS ask   only round trips of 8 B, for so long; prints how many per second */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW 64
#define EDGE 512 /* of the grid's strip per rank, in points */

static void fail(const char *what) {
    fprintf(stderr, "exchange: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void fill(unsigned char *bytes, size_t len, unsigned round) {
    for (size_t n = 0; n < len; n++)
        bytes[n] = (unsigned char)(n * 31 + round);
}

static void check(const unsigned char *bytes, size_t len, unsigned round) {
    for (size_t n = 0; n < len; n++)
        if (bytes[n] != (unsigned char)(n * 31 + round))
            fail("wrong bytes arrived");
}

/* Half the round trip of `len` bytes, the mean of `count`. */
static double latency(int rank, size_t len, int count) {
    unsigned char *bytes = malloc(len);
    double begin = 0;
    for (int n = -count / 10; n < count; n++) {
        if (n == 0) {
            MPI_Barrier(MPI_COMM_WORLD);
            begin = MPI_Wtime();
        }
        if (rank == 0) {
            fill(bytes, len, (unsigned)n);
            MPI_Send(bytes, (int)len, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(bytes, (int)len, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check(bytes, len, (unsigned)n + 1);
        } else {
            MPI_Recv(bytes, (int)len, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check(bytes, len, (unsigned)n);
            fill(bytes, len, (unsigned)n + 1);
            MPI_Send(bytes, (int)len, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
        }
    }
    free(bytes);
    return (MPI_Wtime() - begin) / count / 2;
}

/* Round trips of 8 B per second, for so many seconds. Rank 0 says with the first byte whether another one follows. */
static double ask(int rank, double seconds) {
    unsigned char bytes[8];
    unsigned count = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (unsigned char more = 1; more; count++) {
        if (rank == 0) {
            more = MPI_Wtime() - begin < seconds;
            fill(bytes, sizeof bytes, count);
            bytes[0] = more;
            MPI_Send(bytes, sizeof bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(bytes, sizeof bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check(bytes, sizeof bytes, count + 1);
        } else {
            MPI_Recv(bytes, sizeof bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            more = bytes[0];
            bytes[0] = (unsigned char)count;
            check(bytes, sizeof bytes, count);
            fill(bytes, sizeof bytes, count + 1);
            MPI_Send(bytes, sizeof bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
        }
    }
    return count / (MPI_Wtime() - begin);
}

/* Messages of `len` bytes per second from rank 0 to rank 1, WINDOW of them in flight. */
static double rate(int rank, size_t len, int windows) {
    unsigned char *bytes = malloc(len * WINDOW), word = 0;
    MPI_Request requests[WINDOW];
    MPI_Status done[WINDOW];
    double begin = 0;
    for (int n = -1; n < windows; n++) {
        if (n == 0) {
            MPI_Barrier(MPI_COMM_WORLD);
            begin = MPI_Wtime();
        }
        if (rank == 0)
            fill(bytes, len * WINDOW, (unsigned)n);
        for (int at = 0; at < WINDOW; at++) {
            unsigned char *part = bytes + (size_t)at * len;
            if (rank == 0)
                MPI_Isend(part, (int)len, MPI_BYTE, 1, at, MPI_COMM_WORLD, &requests[at]);
            else
                MPI_Irecv(part, (int)len, MPI_BYTE, 0, at, MPI_COMM_WORLD, &requests[at]);
        }
        MPI_Waitall(WINDOW, requests, done);
        if (rank == 1) {
            check(bytes, len * WINDOW, (unsigned)n);
            MPI_Send(&word, 1, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
        } else {
            MPI_Recv(&word, 1, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }
    free(bytes);
    return windows * (double)WINDOW / (MPI_Wtime() - begin);
}

/* Relaxes a grid that is cut in two strips, whose edges are exchanged in every step. Returns the time; `*share` is the part of it
 * that was spent in MPI. Both ranks must end with the sum that one rank alone would have. */
static double halo(int rank, int steps, double *share) {
    const size_t row = EDGE;
    const int rows = 64;
    double *now = calloc(row * (size_t)(rows + 2), sizeof *now), *next = calloc(row * (size_t)(rows + 2), sizeof *next);
    if (rank == 0)
        for (size_t n = 0; n < row; n++)
            now[n] = next[n] = 1.0;
    const int other = 1 - rank, own = rank == 0 ? rows : 1, edge = rank == 0 ? rows + 1 : 0;
    double in_mpi = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int step = 0; step < steps; step++) {
        const double at = MPI_Wtime();
        MPI_Sendrecv(now + row * (size_t)own, (int)row, MPI_DOUBLE, other, 1, now + row * (size_t)edge, (int)row, MPI_DOUBLE,
                     other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        in_mpi += MPI_Wtime() - at;
        for (int y = 1; y <= rows; y++)
            for (size_t x = 1; x + 1 < row; x++) {
                const double *here = now + row * (size_t)y + x;
                next[row * (size_t)y + x] = (here[-1] + here[1] + here[-(long)row] + here[row]) / 4;
            }
        double *swap = now;
        now = next;
        next = swap;
    }
    const double wall = MPI_Wtime() - begin;
    double sum = 0, all = 0;
    for (size_t n = row; n < row * (size_t)(rows + 1); n++)
        sum += now[n];
    MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("halo_sum %.9f\n", all);
    free(now);
    free(next);
    *share = in_mpi / wall;
    return wall;
}

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2)
        fail("needs two ranks");
    const double scale = argc > 1 ? atof(argv[1]) : 1;
    if (scale < 0.1)
        fail("the scale must be at least 0.1");
    if (argc > 2 && strcmp(argv[2], "ask") == 0) {
        const double per_s = ask(rank, scale);
        if (rank == 0)
            printf("%.1f\n", per_s);
        MPI_Finalize();
        return 0;
    }
    const double small = latency(rank, 8, (int)(2000 * scale)), large = latency(rank, 65536, (int)(200 * scale));
    const double messages = rate(rank, 8, (int)(100 * scale)), big = rate(rank, 65536, (int)(10 * scale));
    double share;
    const double wall = halo(rank, (int)(1000 * scale), &share);
    if (rank == 0) {
        printf("latency_8 %.9f\nlatency_64k %.9f\n", small, large);
        printf("messages_8 %.1f\nbytes_64k %.1f\n", messages, big * 65536);
        printf("halo %.6f\nhalo_share %.4f\n", wall, share);
    }
    MPI_Finalize();
    return 0;
}
