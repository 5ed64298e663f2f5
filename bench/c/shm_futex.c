/* The ring with ends that sleep on a futex. The sleeper's membarrier also serves as the waker's fence. */
#include "loop.h"
#include "ring.h"
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>

/* A receiver in the middle of a stream checks again for this long before it sleeps; after a single message it does not. */
#define FLOW_NS 5000
#define FLOW_MESSAGES 8

static uint64_t burst;
static int flows;

static void transport_side(int child) {
    ring_side(child);
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) < 0) die("membarrier");
}

static void fence_all(void) {
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) < 0) die("membarrier");
}

/* At most 50 ms: membarrier sometimes leaves out a CPU, and then nobody wakes this end. */
static void sleep_on(_Atomic uint32_t *asleep) {
    static const struct timespec slice = {0, 50000000};
    syscall(SYS_futex, asleep, FUTEX_WAIT, 1, &slice, 0, 0);
}

static void wake(_Atomic uint32_t *asleep) {
    uint32_t one = 1;
    if (atomic_compare_exchange_strong(asleep, &one, 0)) syscall(SYS_futex, asleep, FUTEX_WAKE, 1, 0, 0, 0);
}

static int spin_budget(uint64_t *until) {
    uint64_t now = now_ns();
    if (!*until) *until = now + FLOW_NS;
    return now < *until;
}

static void wait_for_message(struct ring *r) {
    _Atomic uint64_t *header = header_at(r, r->offset);
    uint64_t until = 0;
    if (burst >= FLOW_MESSAGES) flows = 1;
    burst = 0;
    if (flows) {
        for (unsigned spins = 1; !atomic_load_explicit(header, memory_order_acquire); spins++) {
            relax();
            if (spins % 128 == 0 && !spin_budget(&until)) {
                flows = 0;
                break;
            }
        }
    }
    while (!atomic_load_explicit(header, memory_order_acquire)) {
        atomic_store_explicit(&r->control->consumer_asleep, 1, memory_order_release);
        fence_all();
        if (!atomic_load_explicit(header, memory_order_acquire)) sleep_on(&r->control->consumer_asleep);
    }
    atomic_store_explicit(&r->control->consumer_asleep, 0, memory_order_relaxed);
}

static void wait_for_room(struct ring *r, uint64_t least) {
    uint64_t wanted = plenty(r, least), until = 0;
    for (unsigned spins = 1;; spins++) {
        r->head_seen = atomic_load_explicit(&r->control->head, memory_order_acquire);
        if (r->head_seen >= wanted) return;
        relax();
        if (spins % 128 == 0 && !spin_budget(&until)) break;
    }
    atomic_store_explicit(&r->control->head_wanted, wanted, memory_order_relaxed);
    while (r->head_seen < wanted) {
        atomic_store_explicit(&r->control->producer_asleep, 1, memory_order_release);
        fence_all();
        r->head_seen = atomic_load_explicit(&r->control->head, memory_order_acquire);
        if (r->head_seen < wanted) sleep_on(&r->control->producer_asleep);
        r->head_seen = atomic_load_explicit(&r->control->head, memory_order_acquire);
    }
    atomic_store_explicit(&r->control->producer_asleep, 0, memory_order_relaxed);
}

static void published(struct ring *r) {
    atomic_signal_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&r->control->consumer_asleep, memory_order_relaxed)) wake(&r->control->consumer_asleep);
}

static void freed(struct ring *r) {
    burst++;
    atomic_signal_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&r->control->producer_asleep, memory_order_acquire) &&
        r->position >= atomic_load_explicit(&r->control->head_wanted, memory_order_relaxed))
        wake(&r->control->producer_asleep);
}
