/* Shared by all reference loops: two pinned processes, the sender's rotating messages, the receiver's sum over every
 * byte, the clock, and the one line of JSON at the end. A transport is four functions; nothing else is measured.
 *
 * Usage of each program: PROGRAM throughput|ping-pong SIZE MESSAGES CPU_A CPU_B WORKING_SET WARMUP [BATCH]
 * WARMUP messages precede the counted ones: a virtual machine's wake-ups are up to 50 % faster in the first 100 ms.
 * ping-pong times BATCH round trips together (a short one takes hardly longer than reading the clock).
 * With BATCH 0 no payload is touched: the same hot message every time, no number in it, no sum over it, and the clock is read only at both ends.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The transport, defined by the file that includes this. */
static void transport_open(size_t size);          /* before the fork */
static void transport_side(int child);            /* after it, in each process */
static void transport_send(const void *message, size_t size);
static uint64_t transport_recv(size_t size);      /* receives one message and returns the sum over it */

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) < 0) die("sched_setaffinity");
}

typedef uint64_t words2 __attribute__((vector_size(16), aligned(8), may_alias));

/* BATCH 0: the minimum that a loop can do. */
static int touch_nothing;

/* Adds a message's 64-bit words in eight lanes; reads every byte. Four vectors, since gcc keeps a wider one on the stack. */
static inline uint64_t sum(const void *message, size_t size) {
    if (touch_nothing) return 0;
    const unsigned char *p = message;
    words2 a = {0}, b = {0}, c = {0}, d = {0};
    for (; size >= 64; size -= 64, p += 64) {
        const words2 *line = (const words2 *)p;
        a += line[0], b += line[1], c += line[2], d += line[3];
    }
    a += b + c + d;
    uint64_t total = a[0] + a[1], word;
    for (; size >= 8; size -= 8, p += 8) {
        memcpy(&word, p, 8);
        total += word;
    }
    if (size) {
        word = 0;
        memcpy(&word, p, size);
        total += word;
    }
    return total;
}

/* The sender's messages, used in rotation: more of them than fit into its private caches. */
static unsigned char *arena;
static size_t arena_len, arena_at, stride;
static uint64_t sequence;

static void source_make(size_t size, size_t working_set) {
    stride = (size + 63) / 64 * 64;
    size_t count = (working_set + stride - 1) / stride;
    arena_len = stride * (count < 4 ? 4 : count);
    arena = aligned_alloc(64, arena_len);
    if (!arena) die("aligned_alloc");
    memset(arena, 0x5a, arena_len);
}

static inline const void *source_next(size_t size) {
    if (touch_nothing) return arena;
    unsigned char *message = arena + arena_at;
    arena_at += stride;
    if (arena_at == arena_len) arena_at = 0;
    if (size >= 8) memcpy(message, &sequence, 8);
    sequence++;
    return message;
}

/* Data that the two processes exchange besides messages. */
struct outcome {
    volatile int ready;
    uint64_t end_ns;
    uint64_t sum;
};

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc < 8) {
        fprintf(stderr, "usage: %s throughput|ping-pong SIZE MESSAGES CPU_A CPU_B WORKING_SET WARMUP [BATCH]\n", argv[0]);
        return 2;
    }
    int ping_pong = strcmp(argv[1], "ping-pong") == 0;
    size_t size = strtoul(argv[2], 0, 10), working_set = strtoul(argv[6], 0, 10);
    uint64_t messages = strtoull(argv[3], 0, 10), batch = argc > 8 ? strtoull(argv[8], 0, 10) : 1;
    struct outcome *outcome = mmap(0, sizeof *outcome, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (outcome == MAP_FAILED) die("mmap");
    if (messages == 0) return 2;
    if (batch == 0) {
        touch_nothing = 1;
        batch = messages;
    }
    messages = (messages + batch - 1) / batch * batch;
    uint64_t warmup = strtoull(argv[7], 0, 10);
    uint64_t all = messages + warmup;

    signal(SIGPIPE, SIG_IGN);
    transport_open(size);
    pid_t child = fork();
    if (child < 0) die("fork");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin(atoi(argv[5]));
        transport_side(1);
        if (ping_pong) source_make(size, working_set);
        outcome->ready = 1;
        uint64_t total = 0;
        for (uint64_t n = 0; n < all; n++) {
            total += transport_recv(size);
            if (ping_pong) transport_send(source_next(size), size);
        }
        outcome->end_ns = now_ns();
        outcome->sum = total;
        _exit(0);
    }
    pin(atoi(argv[4]));
    transport_side(0);
    source_make(size, working_set);
    while (!outcome->ready) sched_yield();

    uint64_t samples = messages / batch, *times = 0, total = 0, start = 0, end = 0;
    if (ping_pong) {
        times = malloc(samples * sizeof *times);
        if (!times) die("malloc");
        memset(times, 0, samples * sizeof *times);
        for (uint64_t n = 0; n < warmup; n++) {
            transport_send(source_next(size), size);
            total += transport_recv(size);
        }
        uint64_t before = start = now_ns();
        for (uint64_t i = 0; i < samples; i++) {
            for (uint64_t n = 0; n < batch; n++) {
                transport_send(source_next(size), size);
                total += transport_recv(size);
            }
            uint64_t after = now_ns();
            times[i] = after - before;
            before = after;
        }
        end = before;
    } else {
        for (uint64_t n = 0; n < warmup; n++) transport_send(source_next(size), size);
        start = now_ns();
        for (uint64_t n = 0; n < messages; n++) transport_send(source_next(size), size);
    }
    int status;
    if (waitpid(child, &status, 0) < 0 || status != 0) {
        fprintf(stderr, "the receiver failed\n");
        return 1;
    }
    if (!ping_pong) end = outcome->end_ns;
    printf("{\"messages\":%llu,\"bytes\":%llu,\"wall_ns\":%llu,\"sum\":%llu,\"rtt_p50_ns\":", (unsigned long long)messages,
           (unsigned long long)(messages * size), (unsigned long long)(end - start),
           (unsigned long long)(total + outcome->sum));
    if (ping_pong) {
        qsort(times, samples, sizeof *times, by_value);
        printf("%.1f}\n", (double)times[samples / 2] / (double)batch);
    } else {
        printf("null}\n");
    }
    return 0;
}
