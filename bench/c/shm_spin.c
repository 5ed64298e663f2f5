/* The ring with ends that spin. */
#include "loop.h"
#include "ring.h"

static void transport_side(int child) { ring_side(child); }

static void wait_for_message(struct ring *r) {
    while (!atomic_load_explicit(header_at(r, r->offset), memory_order_acquire)) relax();
}

static void wait_for_room(struct ring *r, uint64_t least) {
    uint64_t wanted = plenty(r, least);
    while ((r->head_seen = atomic_load_explicit(&r->control->head, memory_order_acquire)) < wanted) relax();
}

static void published(struct ring *r) { (void)r; }

static void freed(struct ring *r) { (void)r; }
