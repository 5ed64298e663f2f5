/* Calls every function in the header on the tipcd at the given path; valid C99 and C++. Prints the first line whose check fails. */
#include <crossway_tipc.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "holds.h"

enum { SOON = 120000 };

static const char *path;

static ctipc_socket *opened(int kind)
{
    ctipc_socket *s = NULL;
    HOLDS(ctipc_open(kind, path, &s) == 0 && s != NULL);
    return s;
}

static ctipc_address address(uint8_t form, int8_t scope, uint32_t a, uint32_t b, uint32_t c)
{
    ctipc_address made;
    memset(&made, 0, sizeof made);
    made.family = 30;
    made.form = form;
    made.scope = scope;
    made.a = a;
    made.b = b;
    made.c = c;
    return made;
}

static void nonsense(void)
{
    ctipc_socket *s;
    char byte;
    HOLDS(ctipc_open(77, path, &s) == -EPROTOTYPE && strstr(ctipc_error(), "CTIPC_STREAM"));
    HOLDS(ctipc_open(CTIPC_RDM, path, NULL) == -EFAULT && strstr(ctipc_error(), "NULL"));
    HOLDS(ctipc_open(CTIPC_RDM, "/nonexistent/tipcd", &s) < 0 && strstr(ctipc_error(), "no tipcd at"));
    HOLDS(ctipc_open(CTIPC_RDM, "kernel", &s) == 0 || strlen(ctipc_error()) > 0);
    HOLDS(ctipc_fd(NULL) == -EBADF && ctipc_bind(NULL, NULL) == -EBADF && ctipc_listen(NULL) == -EBADF);
    HOLDS(ctipc_connect(NULL, NULL, 0) == -EBADF && ctipc_accept(NULL, &s, NULL, 0) == -EBADF);
    HOLDS(ctipc_send(NULL, "x", 1, NULL, 0) == -EBADF && ctipc_recv(NULL, &byte, 1, NULL, 0) == -EBADF);
    HOLDS(ctipc_join(NULL, 1000, 1, 2, 0) == -EBADF && ctipc_leave(NULL) == -EBADF && ctipc_take_error(NULL) == -EBADF);
    ctipc_close(NULL);
}

static void messages(void)
{
    ctipc_socket *server = opened(CTIPC_RDM), *client = opened(CTIPC_DGRAM);
    ctipc_address range = address(CTIPC_SERVICE_RANGE, CTIPC_CLUSTER, 1000, 1, 9);
    ctipc_address one = address(CTIPC_SERVICE, 0, 1000, 5, 0), own, unspecified;
    ctipc_message m;
    char text[16];
    uint32_t value = 7;
    struct pollfd ready;

    HOLDS(ctipc_getsockname(server, &own) == 0 && own.family == 30 && own.form == CTIPC_SOCKET && own.a != 0);
    HOLDS(ctipc_bind(server, &own) == -EAFNOSUPPORT);
    HOLDS(ctipc_bind(server, &range) == 0);
    HOLDS(ctipc_listen(server) == -EOPNOTSUPP && ctipc_shutdown(server) == -ENOTCONN);
    HOLDS(ctipc_send(client, "x", 1, NULL, 0) == -EDESTADDRREQ);
    HOLDS(ctipc_send(client, NULL, 1, &one, 0) == -EFAULT && ctipc_send(client, NULL, 0, &one, 0) == 0);
    HOLDS(ctipc_send(client, "hello", 5, &one, -1) == 5);
    ready.fd = ctipc_fd(server);
    ready.events = POLLIN;
    HOLDS(poll(&ready, 1, SOON) == 1 && (ready.revents & POLLIN));
    memset(&m, 0xff, sizeof m);
    HOLDS(ctipc_peek(server, text, sizeof text, &m, SOON) == 5 && m.event == CTIPC_DATA);
    memset(&m, 0xff, sizeof m);
    HOLDS(ctipc_recv(server, text, 3, &m, SOON) == 3 && memcmp(text, "hel", 3) == 0);
    HOLDS(m.event == CTIPC_DATA && m.error == 0 && m.truncated == 1 && m.has_member == 0 && m.member == 0);
    HOLDS(m.has_service == 1 && m.service == 1000 && m.lower == 5 && m.upper == 5);
    HOLDS(ctipc_getsockname(client, &own) == 0 && memcmp(&own, &m.from, sizeof own) == 0);
    HOLDS(ctipc_recv(server, text, sizeof text, NULL, 0) == -EAGAIN);
    HOLDS(ctipc_recv(server, text, 0, NULL, 0) == -EINVAL && ctipc_recv(server, NULL, 4, NULL, 0) == -EINVAL);
    /* Set a default destination and clear it again. */
    memset(&unspecified, 0, sizeof unspecified);
    HOLDS(ctipc_connect(client, &one, 0) == 0 && ctipc_send(client, "you", 3, NULL, -1) == 3);
    HOLDS(ctipc_recv(server, text, sizeof text, NULL, SOON) == 3);
    HOLDS(ctipc_connect(client, &unspecified, 0) == 0 && ctipc_send(client, "x", 1, NULL, 0) == -EDESTADDRREQ);
    /* Options and returned messages. */
    HOLDS(ctipc_getsockopt(client, CTIPC_DEST_DROPPABLE, &value) == 0 && value == 1);
    HOLDS(ctipc_getsockopt(client, CTIPC_IMPORTANCE, NULL) == -EFAULT);
    HOLDS(ctipc_setsockopt(client, CTIPC_IMPORTANCE, 4) == -EINVAL);
    HOLDS(ctipc_setsockopt(client, CTIPC_DEST_DROPPABLE, 0) == 0);
    HOLDS(ctipc_send(client, "back", 4, &one, -1) == 4);
    ctipc_close(server);
    HOLDS(ctipc_recv(client, text, sizeof text, &m, SOON) == 4 && memcmp(text, "back", 4) == 0);
    HOLDS(m.event == CTIPC_RETURNED && m.error == 2);
    HOLDS(ctipc_send(client, "x", 1, &one, 0) == -EHOSTUNREACH);
    /* Withdraw one binding, then all of them. */
    server = opened(CTIPC_RDM);
    HOLDS(ctipc_bind(server, &range) == 0);
    range.scope = -CTIPC_CLUSTER;
    HOLDS(ctipc_bind(server, &range) == 0 && ctipc_bind(server, &range) == 0);
    HOLDS(ctipc_send(client, "x", 1, &one, 0) == -EHOSTUNREACH && ctipc_bind(server, NULL) == 0);
    ctipc_close(server);
    ctipc_close(client);
}

static void connections(int kind)
{
    ctipc_socket *listener = opened(kind), *client = opened(kind), *server = NULL, *refused = opened(kind);
    ctipc_address name = address(CTIPC_SERVICE_RANGE, CTIPC_NODE, 1001, 1, 1), from, own;
    ctipc_address to = address(CTIPC_SERVICE, 0, 1001, 1, 0), nobody = address(CTIPC_SOCKET, 0, 4242, 0, 0);
    ctipc_message m;
    char text[16];
    struct pollfd ready;

    HOLDS(ctipc_accept(listener, &server, NULL, 0) == -EINVAL && ctipc_accept(listener, NULL, NULL, 0) == -EFAULT);
    HOLDS(ctipc_listen(listener) == 0 && ctipc_bind(listener, &name) == 0);
    HOLDS(ctipc_accept(listener, &server, NULL, 0) == -EAGAIN);
    HOLDS(ctipc_connect(client, &to, 0) == -EINPROGRESS);
    HOLDS(ctipc_accept(listener, &server, &from, SOON) == 0);
    HOLDS(ctipc_getsockname(client, &own) == 0 && memcmp(&own, &from, sizeof own) == 0);
    ready.fd = ctipc_fd(client);
    ready.events = POLLOUT;
    HOLDS(poll(&ready, 1, SOON) == 1 && ctipc_take_error(client) == 0);
    HOLDS(ctipc_getpeername(server, &from) == 0 && memcmp(&own, &from, sizeof own) == 0);
    HOLDS(ctipc_getpeername(listener, &from) == -ENOTCONN && ctipc_getpeername(server, NULL) == -EFAULT);
    HOLDS(ctipc_send(client, "words", 5, NULL, SOON) == 5 && ctipc_shutdown(client) == 0);
    HOLDS(ctipc_recv(server, text, sizeof text, &m, SOON) == 5 && m.event == CTIPC_DATA);
    HOLDS(ctipc_recv(server, text, sizeof text, &m, SOON) == 0 && m.event == CTIPC_END && m.error == 5);
    HOLDS(ctipc_send(server, "x", 1, NULL, 0) == -EPIPE);
    HOLDS(ctipc_connect(refused, &nobody, 0) == -EINPROGRESS);
    ready.fd = ctipc_fd(refused);
    ready.events = POLLIN;
    HOLDS(poll(&ready, 1, SOON) == 1);
    HOLDS(ctipc_take_error(refused) == -ECONNREFUSED && ctipc_take_error(refused) == 0);
    ctipc_close(listener);
    ctipc_close(client);
    ctipc_close(server);
    ctipc_close(refused);
}

static void group(void)
{
    ctipc_socket *one = opened(CTIPC_RDM), *two = opened(CTIPC_RDM);
    ctipc_message m;
    uint32_t value = 0;
    char text[16];

    HOLDS(ctipc_join(one, 63, 1, CTIPC_CLUSTER, 0) == -EACCES);
    HOLDS(ctipc_join(one, 2000, 1, CTIPC_CLUSTER, CTIPC_MEMBER_EVENTS) == 0);
    HOLDS(ctipc_getsockopt(one, CTIPC_GROUP_JOIN, &value) == 0 && value == 2000);
    HOLDS(ctipc_join(two, 2000, 2, CTIPC_CLUSTER, 0) == 0);
    HOLDS(ctipc_recv(one, text, sizeof text, &m, SOON) == 0 && m.event == CTIPC_MEMBER_UP && m.member == 2);
    HOLDS(ctipc_send(one, "all", 3, NULL, SOON) == 3);
    HOLDS(ctipc_recv(two, text, sizeof text, &m, SOON) == 3 && m.has_member == 1 && m.member == 1);
    HOLDS(ctipc_leave(two) == 0 && ctipc_leave(two) == -EINVAL);
    HOLDS(ctipc_recv(one, text, sizeof text, &m, SOON) == 0 && m.event == CTIPC_MEMBER_DOWN);
    ctipc_close(one);
    ctipc_close(two);
}

int main(int argc, char **argv)
{
    HOLDS(argc == 2);
    path = argv[1];
    HOLDS(sizeof(ctipc_address) == 16 && sizeof(ctipc_message) == 52);
    nonsense();
    messages();
    connections(CTIPC_SEQPACKET);
    connections(CTIPC_STREAM);
    group();
    puts("all calls held");
    return 0;
}
