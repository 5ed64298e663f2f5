/* A single-producer single-consumer ring in shared memory, mapped twice in a row. A record is a header word (length with the
 * top bit set) and the payload; the header is stored last, which publishes the record; before that, the next header is zeroed.
 * The consumer's head has its own cache line. The including file defines how an end waits.
 */
#include <stdatomic.h>

/* For larger messages, a few times the size of the private caches, as in Crossway. */
#define RING_MIN(size) ((size) <= 256 ? 256u << 10 : 4u << 20)
#define PUBLISHED (1ull << 63)

struct control {
    _Alignas(128) _Atomic uint64_t head;
    _Alignas(128) _Atomic uint32_t consumer_asleep;
    _Alignas(128) _Atomic uint32_t producer_asleep;
    _Alignas(128) _Atomic uint64_t head_wanted;
};

struct ring {
    struct control *control;
    unsigned char *records;
    size_t capacity;
    uint64_t position, head_seen;
    size_t offset;
};

static void wait_for_message(struct ring *ring);
static void wait_for_room(struct ring *ring, uint64_t least);
static void published(struct ring *ring);
static void freed(struct ring *ring);

static struct ring rings[2], *out_ring, *in_ring;

static inline _Atomic uint64_t *header_at(struct ring *ring, size_t offset) {
    return (_Atomic uint64_t *)(ring->records + offset);
}

static inline size_t record_len(size_t offset, size_t size) {
    return size >= 512 ? (offset + size + 16 + 63) / 64 * 64 - 8 - offset : (size + 8 + 7) / 8 * 8;
}

static void transport_open(size_t size) {
    size_t capacity = 4 * (size + 64) > RING_MIN(size) ? 4 * (size + 64) : RING_MIN(size);
    capacity = (capacity + 4095) / 4096 * 4096;
    for (int i = 0; i < 2; i++) {
        int fd = memfd_create("crossway-reference", 0);
        if (fd < 0 || ftruncate(fd, (off_t)capacity) < 0) die("memfd_create");
        unsigned char *at = mmap(0, 2 * capacity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) die("mmap");
        for (int twice = 0; twice < 2; twice++)
            if (mmap(at + (size_t)twice * capacity, capacity, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0) == MAP_FAILED)
                die("mmap");
        struct control *control =
            mmap(0, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (control == MAP_FAILED) die("mmap");
        rings[i] = (struct ring){.control = control, .records = at, .capacity = capacity};
        close(fd);
    }
}

static void ring_side(int child) {
    /* Fault the pages in for this process, too. */
    for (int i = 0; i < 2; i++) madvise(rings[i].records, 2 * rings[i].capacity, 23 /* MADV_POPULATE_WRITE */);
    out_ring = &rings[child];
    in_ring = &rings[!child];
}

static void transport_send(const void *message, size_t size) {
    struct ring *r = out_ring;
    size_t len = record_len(r->offset, size);
    uint64_t end = r->position + len;
    if (end + 8 > r->head_seen + r->capacity) {
        r->head_seen = atomic_load_explicit(&r->control->head, memory_order_acquire);
        if (end + 8 > r->head_seen + r->capacity) wait_for_room(r, end + 8 - r->capacity);
    }
    memcpy(r->records + r->offset + 8, message, size);
    size_t next = r->offset + len;
    if (next >= r->capacity) next -= r->capacity;
    atomic_store_explicit(header_at(r, next), 0, memory_order_relaxed);
    atomic_store_explicit(header_at(r, r->offset), PUBLISHED | size, memory_order_release);
    r->position = end;
    r->offset = next;
    published(r);
}

static uint64_t transport_recv(size_t size) {
    struct ring *r = in_ring;
    uint64_t header = atomic_load_explicit(header_at(r, r->offset), memory_order_acquire);
    if (!header) {
        wait_for_message(r);
        header = atomic_load_explicit(header_at(r, r->offset), memory_order_acquire);
    }
    if (header != (PUBLISHED | size)) die("unexpected header");
    uint64_t total = sum(r->records + r->offset + 8, size);
    size_t len = record_len(r->offset, size);
    r->position += len;
    r->offset += len;
    if (r->offset >= r->capacity) r->offset -= r->capacity;
    atomic_store_explicit(&r->control->head, r->position, memory_order_release);
    freed(r);
    return total;
}

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

/* Wait for half the ring, or for what the message needs if that is more: waiting for a single record would move both ends in lockstep. */
static inline uint64_t plenty(struct ring *r, uint64_t least) {
    uint64_t half = r->position > r->capacity / 2 ? r->position - r->capacity / 2 : 0;
    return half > least ? half : least;
}
