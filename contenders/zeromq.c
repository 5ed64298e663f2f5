/* ZeroMQ: a pair of PAIR sockets over ipc:// or tcp://, one frame per message, with the library's own queues and I/O thread. */
#define _GNU_SOURCE
#include "crossway_contender.h"

#include <zmq.h>

static const char *transport;
static void *context, *channel, *events;

static void library(char *text, size_t room)
{
    int major, minor, patch;
    zmq_version(&major, &minor, &patch);
    snprintf(text, room, "libzmq %d.%d.%d", major, minor, patch);
}

static int make(void)
{
    /* Messages that were sent are delivered before the program ends. */
    int linger = 5000;
    context = zmq_ctx_new();
    channel = context ? zmq_socket(context, ZMQ_PAIR) : NULL;
    if (!channel || zmq_setsockopt(channel, ZMQ_LINGER, &linger, sizeof linger) != 0)
        return -1;
    /* A PAIR socket does not show that its peer has disconnected, but its monitor does. */
    if (zmq_socket_monitor(channel, "inproc://events", ZMQ_EVENT_DISCONNECTED) != 0)
        return -1;
    events = zmq_socket(context, ZMQ_PAIR);
    return events ? zmq_connect(events, "inproc://events") : -1;
}

static int listen_(struct cw_role *role, struct cw_words *offer)
{
    char at[600], bound[600];
    size_t len = sizeof bound;
    if (strcmp(transport, "ipc") == 0)
        snprintf(at, sizeof at, "ipc://%s/s", role->dir);
    else
        snprintf(at, sizeof at, "tcp://%s:*", role->bind);
    if (make() != 0 || zmq_bind(channel, at) != 0 || zmq_getsockopt(channel, ZMQ_LAST_ENDPOINT, bound, &len) != 0)
        return -1;
    cw_offer(offer, "endpoint", "%s", bound);
    return 0;
}

static int connect_(struct cw_role *role, const struct cw_words *offer)
{
    (void)role;
    return make() != 0 ? -1 : zmq_connect(channel, cw_word(offer, "endpoint"));
}

/* Waits until the socket is ready or the peer has disconnected. */
static int wait_for(short what)
{
    zmq_pollitem_t items[2] = {{.socket = channel, .events = what}, {.socket = events, .events = ZMQ_POLLIN}};
    if (zmq_poll(items, 2, -1) < 0)
        return -1;
    if (items[0].revents & what)
        return 0;
    errno = EPIPE;
    return -1;
}

static int send_(struct cw_role *role, const void *message, size_t len)
{
    (void)role;
    while (zmq_send(channel, message, len, ZMQ_DONTWAIT) < 0)
        if (errno != EAGAIN || wait_for(ZMQ_POLLOUT) != 0)
            return -1;
    return 0;
}

static long receive(struct cw_role *role, void *message, size_t len)
{
    long n;
    (void)role;
    while ((n = zmq_recv(channel, message, len, ZMQ_DONTWAIT)) < 0)
        if (errno != EAGAIN || wait_for(ZMQ_POLLIN) != 0)
            return -1;
    return n;
}

static void close_(struct cw_role *role)
{
    (void)role;
    zmq_socket_monitor(channel, NULL, 0);
    zmq_close(events);
    zmq_close(channel);
    zmq_ctx_term(context);
}

static const struct cw_contender contender = {
    .library = library,
    .listen = listen_,
    .connect = connect_,
    .send = send_,
    .receive = receive,
    .close = close_,
};

int main(int argc, char **argv)
{
    transport = argc > 1 ? argv[1] : "ipc";
    return cw_main(&contender);
}
