/* Two anonymous pipes, one each way. */
#include "loop.h"
#include "descriptors.h"

static int there[2], back[2];

static void transport_open(size_t size) {
    if (pipe(there) < 0 || pipe(back) < 0) die("pipe");
    inbox_make(size);
}

static void transport_side(int child) {
    out_fd = child ? back[1] : there[1];
    in_fd = child ? there[0] : back[0];
    close(child ? there[1] : there[0]);
    close(child ? back[0] : back[1]);
}
