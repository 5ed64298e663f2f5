/* nng: a pair of pair0 sockets over ipc:// or tcp://; messages are queued by the library's own threads. */
#define _GNU_SOURCE
#include "crossway_contender.h"

#include <arpa/inet.h>
#include <nng/nng.h>
#include <nng/protocol/pair0/pair.h>
#include <stdatomic.h>

static const char *transport;
static nng_socket channel;
static nng_aio *work;
static atomic_int peer_gone;

static void library(char *text, size_t room)
{
    snprintf(text, room, "nng %s", nng_version());
}

static void must(int error)
{
    if (error)
        cw_fail("nng: %s", nng_strerror(error));
}

/* nng waits for a peer that has disconnected, in case it reconnects. Here the end of the connection ends the channel. */
static void gone(nng_pipe pipe, nng_pipe_ev event, void *unused)
{
    (void)pipe, (void)event, (void)unused;
    atomic_store(&peer_gone, 1);
    nng_aio_cancel(work);
}

static void make(void)
{
    must(nng_aio_alloc(&work, NULL, NULL));
    nng_aio_set_timeout(work, NNG_DURATION_INFINITE);
    must(nng_pair0_open(&channel));
    must(nng_socket_set_size(channel, NNG_OPT_RECVMAXSZ, 0));
    must(nng_pipe_notify(channel, NNG_PIPE_EV_REM_POST, gone, NULL));
}

static int listen_(struct cw_role *role, struct cw_words *offer)
{
    char at[600];
    nng_listener listener;
    make();
    if (strcmp(transport, "ipc") == 0) {
        snprintf(at, sizeof at, "ipc://%s/s", role->dir);
        must(nng_listen(channel, at, &listener, 0));
    } else {
        nng_sockaddr address;
        snprintf(at, sizeof at, "tcp://%s:0", role->bind);
        must(nng_listen(channel, at, &listener, 0));
        must(nng_listener_get_addr(listener, NNG_OPT_LOCADDR, &address));
        snprintf(at, sizeof at, "tcp://%s:%d", role->bind, ntohs(address.s_in.sa_port));
    }
    cw_offer(offer, "url", "%s", at);
    return 0;
}

static int connect_(struct cw_role *role, const struct cw_words *offer)
{
    (void)role;
    make();
    must(nng_dial(channel, cw_word(offer, "url"), NULL, 0));
    return 0;
}

/* The result of the completed operation. */
static int outcome(void)
{
    int error;
    if (atomic_load(&peer_gone))
        nng_aio_cancel(work);
    nng_aio_wait(work);
    error = nng_aio_result(work);
    if (error && atomic_load(&peer_gone)) {
        errno = EPIPE;
        return -1;
    }
    must(error);
    return 0;
}

static int send_(struct cw_role *role, const void *bytes, size_t len)
{
    nng_msg *message;
    (void)role;
    must(nng_msg_alloc(&message, len));
    memcpy(nng_msg_body(message), bytes, len);
    nng_aio_set_msg(work, message);
    nng_send_aio(channel, work);
    if (outcome() != 0) {
        nng_msg_free(message);
        return -1;
    }
    return 0;
}

static long receive(struct cw_role *role, void *bytes, size_t len)
{
    (void)role;
    nng_recv_aio(channel, work);
    if (outcome() != 0)
        return -1;
    nng_msg *message = nng_aio_get_msg(work);
    size_t got = nng_msg_len(message);
    memcpy(bytes, nng_msg_body(message), got < len ? got : len);
    nng_msg_free(message);
    return (long)got;
}

static void close_(struct cw_role *role)
{
    (void)role;
    nng_close(channel);
    nng_aio_free(work);
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
