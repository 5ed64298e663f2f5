/* A transport over two descriptors: whole messages over a byte stream. */
static int out_fd, in_fd;
static unsigned char *inbox;

static void transport_send(const void *message, size_t size) {
    const unsigned char *p = message;
    while (size) {
        ssize_t n = write(out_fd, p, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) die("write");
        p += n;
        size -= (size_t)n;
    }
}

static uint64_t transport_recv(size_t size) {
    for (size_t got = 0; got < size;) {
        ssize_t n = read(in_fd, inbox + got, size - got);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) die("read");
        got += (size_t)n;
    }
    return sum(inbox, size);
}

static void inbox_make(size_t size) {
    inbox = aligned_alloc(64, (size + 63) / 64 * 64);
    if (!inbox) die("aligned_alloc");
    memset(inbox, 0, size);
}
