/* A UNIX stream socket pair. */
#include "loop.h"
#include "descriptors.h"
#include <sys/socket.h>

static int ends[2];

static void transport_open(size_t size) {
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0) die("socketpair");
    inbox_make(size);
}

static void transport_side(int child) {
    out_fd = in_fd = ends[child];
    close(ends[!child]);
}
