/* The contenders' protocol of Crossway, version 1, for programs in C: one header, no library.
 *
 * A contender defines a `static const struct cw_contender` with the functions below and calls cw_main with it.
 * docs/CONTENDERS.md defines what they must do. The loops are inlined into the program, so that calling through the
 * structure costs nothing where the compiler optimises.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef CROSSWAY_CONTENDER_H
#define CROSSWAY_CONTENDER_H

#ifndef _GNU_SOURCE
#error "define _GNU_SOURCE before the first #include"
#endif

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define CW_PROTOCOL 1
#define CW_WORDS 8
#define CW_SERVERS 8
#define CW_WORD_BYTES 1024
#define CW_VERIFY_MESSAGES 1024

/* The words of an offer, which one end passes to the other before the channel is open: names and texts. */
struct cw_words {
    int count;
    char name[CW_WORDS][64];
    char text[CW_WORDS][CW_WORD_BYTES];
};

/* One end of a channel, as its functions see it. */
struct cw_role {
    char part[16];        /* sender, receiver, client, server */
    int listens;          /* whether it makes the offer; the other end connects */
    size_t size_bytes;    /* maximum length of a message */
    int spins;            /* whether it should wait by spinning */
    int cpu;              /* the CPU on which it was started, or -1 */
    char bind[64];        /* the address to listen at */
    char dir[512];        /* a private directory, removed afterwards; also the working directory */
    char shm_prefix[64];  /* prefix in /dev/shm; everything with it is removed afterwards */
    long capacity_bytes;  /* capacity between the ends if the plan requests one, or -1 */
    long socket_buffer_bytes; /* requested by the plan, or -1 */
    void *channel;        /* for the contender's own use */
    int server_count;     /* processes started by this one that work for both ends */
    long servers[CW_SERVERS];
    int fact_count;
    char fact_name[CW_WORDS][64];
    long fact[CW_WORDS];
};

struct cw_contender {
    /* Writes the library's name and version; called before anything else. */
    void (*library)(char *text, size_t room);
    /* Listens and fills in the offer. */
    int (*listen)(struct cw_role *role, struct cw_words *offer);
    /* Waits for the other end to connect; may be NULL. */
    int (*accept)(struct cw_role *role);
    /* Connects to the other end's offer. */
    int (*connect)(struct cw_role *role, const struct cw_words *offer);
    /* Sends one message, all of it. */
    int (*send)(struct cw_role *role, const void *message, size_t len);
    /* Receives one message into `room` bytes and returns its length, or -1. For byte streams: exactly `len` bytes. */
    long (*receive)(struct cw_role *role, void *message, size_t len);
    /* Sends everything collected for batching; may be NULL. */
    int (*flush)(struct cw_role *role);
    /* Closes the channel. */
    void (*close)(struct cw_role *role);
};

static FILE *cw_in, *cw_out;

static inline uint64_t cw_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Writes text as a quoted JSON string. */
static inline void cw_print_text(const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(cw_out, "\\%c", c);
        else if (c < 0x20)
            fprintf(cw_out, "\\u%04x", c);
        else
            fputc(c, cw_out);
    }
}

/* Lets the calling process run on every available CPU: for servers that a role starts, which are neither end. */
static inline void cw_unpin(void)
{
    cpu_set_t all;
    memset(&all, 0xff, sizeof all);
    sched_setaffinity(0, sizeof all, &all);
}

/* Ends the program with a reason that is shown to the user. */
__attribute__((noreturn, format(printf, 1, 2)))
static inline void cw_fail(const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    fputs("{\"answer\":\"failed\",\"reason\":\"", cw_out);
    cw_print_text(text);
    fputs("\"}\n", cw_out);
    fflush(cw_out);
    exit(1);
}

/* Ends the program because it cannot do what was requested; the trial is skipped, not failed. */
__attribute__((noreturn))
static inline void cw_unsupported(const char *why)
{
    fputs("{\"answer\":\"failed\",\"unsupported\":true,\"reason\":\"", cw_out);
    cw_print_text(why);
    fputs("\"}\n", cw_out);
    fflush(cw_out);
    exit(1);
}

static inline void cw_offer(struct cw_words *offer, const char *name, const char *format, ...)
{
    va_list list;
    if (offer->count == CW_WORDS)
        cw_fail("an offer has at most %d words", CW_WORDS);
    snprintf(offer->name[offer->count], sizeof offer->name[0], "%s", name);
    va_start(list, format);
    vsnprintf(offer->text[offer->count], sizeof offer->text[0], format, list);
    va_end(list);
    offer->count++;
}

/* The value of a word in the other end's offer. */
static inline const char *cw_word(const struct cw_words *offer, const char *name)
{
    for (int i = 0; i < offer->count; i++)
        if (strcmp(offer->name[i], name) == 0)
            return offer->text[i];
    cw_fail("the offer has no word '%s'", name);
}

/* Records a value that was read back from the system; the unit is part of its name. */
static inline void cw_fact(struct cw_role *role, const char *name, long value)
{
    if (role->fact_count == CW_WORDS)
        return;
    snprintf(role->fact_name[role->fact_count], sizeof role->fact_name[0], "%s", name);
    role->fact[role->fact_count++] = value;
}

/* Records a process that this one started and that works for both ends, such as a broker. */
static inline void cw_server(struct cw_role *role, long pid)
{
    if (role->server_count < CW_SERVERS)
        role->servers[role->server_count++] = pid;
}

/* ---- parsing orders: objects of strings, numbers, lists of numbers, and objects of strings ---- */

struct cw_order {
    char *line;
    size_t room;
};

/* The start of the value of a key in the object at `from`; NULL if there is none. */
static const char *cw_find(const char *from, const char *key)
{
    int depth = 0, quoted = 0;
    size_t len = strlen(key);
    for (const char *at = from; *at; at++) {
        if (quoted) {
            if (*at == '\\' && at[1])
                at++;
            else if (*at == '"')
                quoted = 0;
            continue;
        }
        if (*at == '{' || *at == '[')
            depth++;
        else if (*at == '}' || *at == ']') {
            if (--depth == 0)
                return NULL;
        } else if (*at == '"') {
            if (depth == 1 && strncmp(at + 1, key, len) == 0 && at[len + 1] == '"' && at[len + 2] == ':')
                return at + len + 3;
            quoted = 1;
        }
    }
    return NULL;
}

/* Copies the string at `at`, which begins with a quote; returns the position after it. */
static const char *cw_copy_text(const char *at, char *to, size_t room)
{
    size_t n = 0;
    if (*at != '"')
        cw_fail("an order has no text where one belongs");
    for (at++; *at && *at != '"'; at++) {
        char c = *at;
        if (c == '\\') {
            at++;
            if (*at == 'n')
                c = '\n';
            else if (*at == 't')
                c = '\t';
            else if (*at == 'u')
                cw_fail("control characters in texts are not understood by this helper");
            else
                c = *at;
        }
        if (n + 1 < room)
            to[n++] = c;
    }
    to[n] = 0;
    return *at ? at + 1 : at;
}

static void cw_text(const char *line, const char *key, char *to, size_t room)
{
    const char *at = cw_find(line, key);
    to[0] = 0;
    if (at)
        cw_copy_text(at, to, room);
}

/* A number, or `otherwise` where it is null or missing. */
static uint64_t cw_number(const char *line, const char *key, uint64_t otherwise)
{
    const char *at = cw_find(line, key);
    if (!at || *at < '0' || *at > '9')
        return otherwise;
    return strtoull(at, NULL, 10);
}

static int cw_flag(const char *line, const char *key)
{
    const char *at = cw_find(line, key);
    return at && strncmp(at, "true", 4) == 0;
}

static void cw_read_words(const char *line, struct cw_words *words)
{
    const char *at = cw_find(line, "words");
    words->count = 0;
    if (!at || *at != '{')
        return;
    at++;
    while (*at == '"' && words->count < CW_WORDS) {
        at = cw_copy_text(at, words->name[words->count], sizeof words->name[0]);
        if (*at == ':')
            at++;
        at = cw_copy_text(at, words->text[words->count], sizeof words->text[0]);
        words->count++;
        if (*at == ',')
            at++;
    }
}

/* ---- the payload ---- */

struct cw_window {
    uint64_t messages, batch, first;
    unsigned char *payload; /* this process's own copy, on a cache line */
    size_t payload_bytes, count, stride;
    unsigned char *scratch;
    size_t scratch_bytes;
    uint64_t start_ns, end_ns, sent, received, out_of_order, checksum;
    uint64_t *samples;
    size_t sample_room, sample_count;
};

/* Numbers are written this many messages ahead: if a number were written right before it is sent, a copy that loads wider words than the
 * number would have to wait for the store, and the measurement would include that wait. */
#define CW_LEAD 8

static void *cw_lines(size_t bytes)
{
    void *at = NULL;
    if (posix_memalign(&at, 64, bytes ? bytes : 64) != 0)
        cw_fail("no memory for %zu bytes", bytes);
    memset(at, 1, bytes ? bytes : 64);
    return at;
}

/* The sum of the 64-bit little-endian words of a message, the last padded with zeros; reads every byte. */
static inline __attribute__((always_inline)) uint64_t cw_sum(const unsigned char *message, size_t len)
{
    uint64_t sums[8] = {0}, total = 0, word;
    size_t at = 0;
    for (; at + 64 <= len; at += 64)
        for (int i = 0; i < 8; i++) {
            memcpy(&word, message + at + 8 * i, 8);
            sums[i] += word;
        }
    for (int i = 0; i < 8; i++)
        total += sums[i];
    for (; at + 8 <= len; at += 8) {
        memcpy(&word, message + at, 8);
        total += word;
    }
    if (at < len) {
        word = 0;
        memcpy(&word, message + at, len - at);
        total += word;
    }
    return total;
}

struct cw_cursor {
    unsigned char *at, *ahead, *begin, *end;
    uint64_t number;
    size_t size, stride;
};

static inline __attribute__((always_inline)) void cw_number_next(struct cw_cursor *c)
{
    if (c->size >= 8)
        memcpy(c->ahead, &c->number, 8);
    c->number++;
    c->ahead += c->stride;
    if (c->ahead == c->end)
        c->ahead = c->begin;
}

static inline __attribute__((always_inline)) const unsigned char *cw_next(struct cw_cursor *c)
{
    const unsigned char *message = c->at;
    cw_number_next(c);
    c->at += c->stride;
    if (c->at == c->end)
        c->at = c->begin;
    return message;
}

static inline struct cw_cursor cw_cursor(const struct cw_window *w, size_t size)
{
    struct cw_cursor c = {w->payload, w->payload, w->payload, w->payload + w->count * w->stride, w->first, size, w->stride};
    size_t lead = w->count / 2 < CW_LEAD ? w->count / 2 : CW_LEAD;
    for (size_t i = 0; w->payload && i < lead; i++)
        cw_number_next(&c);
    return c;
}

/* Receives one message, reads it, and records whether its number follows the previous one. */
static inline __attribute__((always_inline)) void cw_take(const struct cw_contender *of, struct cw_role *role, struct cw_window *w,
                                                          uint64_t *next)
{
    long n = of->receive(role, w->scratch, role->size_bytes);
    uint64_t number;
    if (__builtin_expect(n != (long)role->size_bytes, 0))
        cw_fail("received %ld bytes instead of %zu: %s", n, role->size_bytes, n < 0 ? strerror(errno) : "a message was cut or joined");
    w->checksum += cw_sum(w->scratch, role->size_bytes);
    if (role->size_bytes >= 8) {
        memcpy(&number, w->scratch, 8);
        if (__builtin_expect(number != *next && w->received != 0, 0))
            w->out_of_order++;
        *next = number + 1;
    }
    w->received++;
}

static inline __attribute__((always_inline)) void cw_put(const struct cw_contender *of, struct cw_role *role, const void *message)
{
    if (__builtin_expect(of->send(role, message, role->size_bytes) != 0, 0))
        cw_fail("sending %zu bytes: %s", role->size_bytes, strerror(errno));
}

static inline __attribute__((always_inline)) void cw_flush(const struct cw_contender *of, struct cw_role *role)
{
    if (of->flush && of->flush(role) != 0)
        cw_fail("flushing: %s", strerror(errno));
}

static inline __attribute__((always_inline)) void cw_go(const struct cw_contender *of, struct cw_role *role, struct cw_window *w)
{
    struct cw_cursor cursor = cw_cursor(w, role->size_bytes);
    uint64_t next = 0;
    w->start_ns = cw_now_ns();
    if (strcmp(role->part, "sender") == 0) {
        for (uint64_t i = 0; i < w->messages; i++)
            cw_put(of, role, cw_next(&cursor));
        cw_flush(of, role);
        w->sent = w->messages;
    } else if (strcmp(role->part, "receiver") == 0) {
        for (uint64_t i = 0; i < w->messages; i++)
            cw_take(of, role, w, &next);
    } else if (strcmp(role->part, "client") == 0) {
        uint64_t last = w->start_ns;
        for (uint64_t i = 0; i < w->messages / w->batch; i++) {
            for (uint64_t j = 0; j < w->batch; j++) {
                cw_put(of, role, cw_next(&cursor));
                cw_flush(of, role);
                cw_take(of, role, w, &next);
            }
            uint64_t now = cw_now_ns();
            w->samples[w->sample_count++] = now - last;
            last = now;
        }
        w->sent = w->messages;
    } else {
        for (uint64_t i = 0; i < w->messages; i++) {
            cw_take(of, role, w, &next);
            cw_put(of, role, cw_next(&cursor));
            cw_flush(of, role);
        }
        w->sent = w->messages;
    }
    w->end_ns = cw_now_ns();
}

static void cw_prepare(struct cw_role *role, struct cw_window *w, const char *line)
{
    const char *payload = cw_find(line, "payload");
    w->messages = cw_number(line, "messages", 0);
    w->batch = cw_number(line, "batch", 1);
    w->first = cw_number(line, "first", 0);
    w->sent = w->received = w->out_of_order = w->checksum = 0;
    w->sample_count = 0;
    if (payload && *payload == '{') {
        char path[512];
        size_t bytes, at = 0;
        cw_text(payload, "path", path, sizeof path);
        w->count = cw_number(payload, "count", 0);
        w->stride = cw_number(payload, "stride", 0);
        bytes = w->count * w->stride;
        if (bytes > w->payload_bytes) {
            free(w->payload);
            w->payload = cw_lines(bytes);
            w->payload_bytes = bytes;
        }
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            cw_fail("opening the payload %s: %s", path, strerror(errno));
        while (at < bytes) {
            ssize_t n = read(fd, w->payload + at, bytes - at);
            if (n <= 0)
                cw_fail("reading the payload: %s", n ? strerror(errno) : "it is shorter than promised");
            at += (size_t)n;
        }
        close(fd);
    }
    if (role->size_bytes > w->scratch_bytes || !w->scratch) {
        free(w->scratch);
        w->scratch = cw_lines(role->size_bytes);
        w->scratch_bytes = role->size_bytes;
    }
    if (strcmp(role->part, "client") == 0 && w->messages / w->batch > w->sample_room) {
        free(w->samples);
        w->sample_room = w->messages / w->batch;
        w->samples = cw_lines(w->sample_room * sizeof *w->samples);
    }
}

static int cw_by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void cw_result(struct cw_window *w, int receives)
{
    fputs("{\"answer\":\"result\"", cw_out);
    if (receives)
        fprintf(cw_out, ",\"checksum\":\"%llx\"", (unsigned long long)w->checksum);
    /* Four digits of each sample are sufficient and keep the line short. */
    for (size_t i = 0; i < w->sample_count; i++) {
        uint64_t step = 1;
        while (w->samples[i] / step >= 10000)
            step *= 10;
        w->samples[i] = w->samples[i] / step * step;
    }
    if (w->sample_count)
        qsort(w->samples, w->sample_count, sizeof *w->samples, cw_by_value);
    fputs(",\"histogram\":[", cw_out);
    for (size_t i = 0; i < w->sample_count;) {
        size_t same = i;
        while (same < w->sample_count && w->samples[same] == w->samples[i])
            same++;
        fprintf(cw_out, "%s[%llu,%zu]", i ? "," : "", (unsigned long long)w->samples[i], same - i);
        i = same;
    }
    fputs("]}\n", cw_out);
}

static void cw_verify(const struct cw_contender *of, struct cw_role *role, const char *line)
{
    static size_t lengths[CW_VERIFY_MESSAGES], got[CW_VERIFY_MESSAGES];
    const char *at = cw_find(line, "lengths");
    int sends = cw_flag(line, "sends"), count = 0;
    char path[512];
    cw_text(line, "path", path, sizeof path);
    while (at && *at != ']' && count < CW_VERIFY_MESSAGES) {
        char *end;
        at++;
        if (*at == ']')
            break;
        lengths[count++] = strtoull(at, &end, 10);
        at = end;
    }
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        cw_fail("opening %s: %s", path, strerror(errno));
    unsigned char *message = cw_lines(role->size_bytes);
    off_t offset = 0;
    for (int i = 0; i < count; i++) {
        if (sends) {
            if (pread(fd, message, lengths[i], offset) != (ssize_t)lengths[i])
                cw_fail("reading %s: %s", path, strerror(errno));
            if (of->send(role, message, lengths[i]) != 0)
                cw_fail("sending %zu bytes: %s", lengths[i], strerror(errno));
            cw_flush(of, role);
            got[i] = lengths[i];
        } else {
            long n = of->receive(role, message, lengths[i]);
            if (n < 0)
                cw_fail("receiving: %s", strerror(errno));
            got[i] = (size_t)n;
            if (pwrite(fd, message, got[i], offset) != (ssize_t)got[i])
                cw_fail("writing %s: %s", path, strerror(errno));
        }
        offset += (off_t)got[i];
    }
    free(message);
    close(fd);
    fputs("{\"answer\":\"verified\",\"lengths\":[", cw_out);
    for (int i = 0; i < count; i++)
        fprintf(cw_out, "%s%zu", i ? "," : "", got[i]);
    fputs("]}\n", cw_out);
}

/* Keeps page faults out of the measurement if the limit of locked memory permits. Otherwise, for example with an unprivileged user's 8 MiB,
 * nothing is locked, because every allocation beyond the limit would fail from then on. */
static void cw_lock_memory(void)
{
    struct rlimit limit;
    void *all;
    if (mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0)
        return;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return;
    all = mmap(NULL, limit.rlim_cur ? limit.rlim_cur : 1, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED)
        munlockall();
    else
        munmap(all, limit.rlim_cur ? limit.rlim_cur : 1);
}

static void cw_begin(const struct cw_contender *of, struct cw_role *role, const char *line)
{
    static struct cw_words offer;
    char wait[16];
    if (cw_number(line, "protocol", 0) != CW_PROTOCOL)
        cw_fail("this helper speaks version %d of the protocol", CW_PROTOCOL);
    cw_text(line, "part", role->part, sizeof role->part);
    cw_text(line, "bind", role->bind, sizeof role->bind);
    cw_text(line, "dir", role->dir, sizeof role->dir);
    cw_text(line, "shm_prefix", role->shm_prefix, sizeof role->shm_prefix);
    cw_text(line, "wait", wait, sizeof wait);
    role->listens = cw_flag(line, "listens");
    role->size_bytes = cw_number(line, "size_bytes", 0);
    role->spins = strcmp(wait, "spin") == 0;
    role->cpu = (int)cw_number(line, "cpu", (uint64_t)-1);
    role->capacity_bytes = (long)cw_number(line, "capacity_bytes", (uint64_t)-1);
    role->socket_buffer_bytes = (long)cw_number(line, "socket_buffer_bytes", (uint64_t)-1);
    cw_lock_memory();
    if (role->listens && of->listen(role, &offer) != 0)
        cw_fail("listening: %s", strerror(errno));
    fputs("{\"answer\":\"offer\",\"words\":{", cw_out);
    for (int i = 0; i < offer.count; i++) {
        fprintf(cw_out, "%s\"", i ? "," : "");
        cw_print_text(offer.name[i]);
        fputs("\":\"", cw_out);
        cw_print_text(offer.text[i]);
        fputc('"', cw_out);
    }
    fputs("},\"servers\":[", cw_out);
    for (int i = 0; i < role->server_count; i++)
        fprintf(cw_out, "%s%ld", i ? "," : "", role->servers[i]);
    fputs("]}\n", cw_out);
}

static void cw_opened(const struct cw_role *role)
{
    fputs("{\"answer\":\"opened\",\"facts\":{", cw_out);
    for (int i = 0; i < role->fact_count; i++)
        fprintf(cw_out, "%s\"%s\":%ld", i ? "," : "", role->fact_name[i], role->fact[i]);
    fputs("}}\n", cw_out);
}

/* Serves orders until the end; returns the exit status for main. */
static inline __attribute__((always_inline)) int cw_serve(const struct cw_contender *of, int in, int out)
{
    static struct cw_role role;
    static struct cw_window window;
    static struct cw_words words;
    char *line = NULL, name[32], library[256] = "";
    size_t room = 0;
    cw_in = fdopen(in, "r");
    cw_out = fdopen(out, "w");
    if (!cw_in || !cw_out)
        return 2;
    of->library(library, sizeof library);
    fprintf(cw_out, "{\"answer\":\"hello\",\"protocol\":%d,\"library\":\"", CW_PROTOCOL);
    cw_print_text(library);
    fputs("\",\"checksum\":\"sum64\"}\n", cw_out);
    fflush(cw_out);
    while (getline(&line, &room, cw_in) > 0) {
        cw_text(line, "order", name, sizeof name);
        if (strcmp(name, "begin") == 0) {
            cw_begin(of, &role, line);
        } else if (strcmp(name, "connect") == 0) {
            cw_read_words(line, &words);
            if (of->connect(&role, &words) != 0)
                cw_fail("connecting: %s", strerror(errno));
            cw_opened(&role);
        } else if (strcmp(name, "accept") == 0) {
            if (of->accept && of->accept(&role) != 0)
                cw_fail("accepting: %s", strerror(errno));
            cw_opened(&role);
        } else if (strcmp(name, "verify") == 0) {
            cw_verify(of, &role, line);
        } else if (strcmp(name, "prepare") == 0) {
            cw_prepare(&role, &window, line);
            fputs("{\"answer\":\"ready\"}\n", cw_out);
        } else if (strcmp(name, "go") == 0) {
            cw_go(of, &role, &window);
            fprintf(cw_out,
                    "{\"answer\":\"done\",\"start_ns\":%llu,\"end_ns\":%llu,\"sent\":%llu,\"received\":%llu,\"out_of_order\":%llu}\n",
                    (unsigned long long)window.start_ns, (unsigned long long)window.end_ns, (unsigned long long)window.sent,
                    (unsigned long long)window.received, (unsigned long long)window.out_of_order);
        } else if (strcmp(name, "result") == 0) {
            cw_result(&window, strcmp(role.part, "sender") != 0);
        } else if (strcmp(name, "close") == 0) {
            of->close(&role);
            fputs("{\"answer\":\"closed\"}\n", cw_out);
            fflush(cw_out);
            return 0;
        } else {
            cw_fail("unknown order '%s'", name);
        }
        fflush(cw_out);
    }
    /* The process that gave orders has ended. */
    return 1;
}

/* The whole body of main: `return cw_main(&contender);`. Standard output is redirected to standard error, so that output of the library
 * is not taken for an answer. */
static inline __attribute__((always_inline)) int cw_main(const struct cw_contender *of)
{
    int in = fcntl(0, F_DUPFD_CLOEXEC, 3), out = fcntl(1, F_DUPFD_CLOEXEC, 3), null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (in < 0 || out < 0 || null < 0)
        return 2;
    dup2(null, 0);
    dup2(2, 1);
    /* A send to a peer that has died fails and is reported; it does not kill this program. */
    signal(SIGPIPE, SIG_IGN);
    return cw_serve(of, in, out);
}

#endif
