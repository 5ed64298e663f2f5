/* A process and its child both send on one socket, and a third process receives. The parent has a lane, the child has
   none: nothing may be lost, doubled or overtaken. Prints the first line whose check fails. */
#include <crossway_tipc.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "holds.h"

enum { SOON = 120000, BEFORE = 300, AT_ONCE = 20000, IN_TURN = 2000 };

struct message {
    uint32_t sender;
    /* Sequence number of this sender. */
    uint32_t number;
    /* Sequence number over both senders; 0 while they do not take turns. */
    uint32_t turn;
    char rest[52];
};

static void put(const ctipc_socket *s, uint32_t sender, uint32_t *number, uint32_t turn)
{
    struct message m;
    size_t sent = 0;
    memset(&m, 0, sizeof m);
    m.sender = sender;
    m.number = (*number)++;
    m.turn = turn;
    while (sent < sizeof m) {
        int64_t more = ctipc_send(s, (const char *)&m + sent, sizeof m - sent, NULL, -1);
        HOLDS(more > 0);
        sent += (size_t)more;
    }
}

/* Receives until the end of the connection. */
static void receive(const ctipc_socket *s)
{
    uint32_t next[2] = {0, 0}, turn = 0;
    struct message m;
    for (;;) {
        size_t have = 0;
        while (have < sizeof m) {
            int64_t more = ctipc_recv(s, (char *)&m + have, sizeof m - have, NULL, SOON);
            if (more == -ECONNRESET && have == 0) {
                HOLDS(next[0] == BEFORE + AT_ONCE + IN_TURN && next[1] == AT_ONCE + IN_TURN && turn == 2 * IN_TURN);
                return;
            }
            HOLDS(more > 0);
            have += (size_t)more;
        }
        HOLDS(m.sender < 2 && m.number == next[m.sender]);
        next[m.sender]++;
        if (m.turn != 0)
            HOLDS(m.turn == ++turn);
    }
}

static void one_kind(const char *path, int kind)
{
    ctipc_socket *listener, *client, *server;
    ctipc_address name;
    struct pollfd writable;
    int to_child[2], to_parent[2], status;
    uint32_t number = 0, n;
    pid_t receiver, child;
    char byte = 0;

    memset(&name, 0, sizeof name);
    name.family = 30;
    name.form = CTIPC_SERVICE_RANGE;
    name.scope = CTIPC_CLUSTER;
    name.a = 6000;
    name.b = name.c = (uint32_t)kind;
    HOLDS(ctipc_open(kind, path, &listener) == 0 && ctipc_open(kind, path, &client) == 0);
    HOLDS(ctipc_listen(listener) == 0 && ctipc_bind(listener, &name) == 0);
    name.form = CTIPC_SERVICE;
    name.c = 0;
    HOLDS(ctipc_connect(client, &name, 0) == -EINPROGRESS);
    HOLDS(ctipc_accept(listener, &server, NULL, SOON) == 0);
    writable.fd = ctipc_fd(client);
    writable.events = POLLOUT;
    HOLDS(poll(&writable, 1, SOON) == 1);

    receiver = fork();
    HOLDS(receiver >= 0);
    if (receiver == 0) {
        ctipc_close(client);
        receive(server);
        _exit(0);
    }
    ctipc_close(server);
    for (n = 0; n < BEFORE; n++)
        put(client, 0, &number, 0);

    HOLDS(pipe(to_child) == 0 && pipe(to_parent) == 0);
    child = fork();
    HOLDS(child >= 0);
    if (child == 0) {
        number = 0;
        for (n = 0; n < AT_ONCE; n++)
            put(client, 1, &number, 0);
        for (n = 0; n < IN_TURN; n++) {
            HOLDS(read(to_child[0], &byte, 1) == 1);
            put(client, 1, &number, 2 * n + 2);
            HOLDS(write(to_parent[1], &byte, 1) == 1);
        }
        ctipc_close(client);
        _exit(0);
    }
    for (n = 0; n < AT_ONCE; n++)
        put(client, 0, &number, 0);
    for (n = 0; n < IN_TURN; n++) {
        put(client, 0, &number, 2 * n + 1);
        HOLDS(write(to_child[1], &byte, 1) == 1);
        HOLDS(read(to_parent[0], &byte, 1) == 1);
    }
    HOLDS(waitpid(child, &status, 0) == child && status == 0);
    ctipc_close(client);
    HOLDS(waitpid(receiver, &status, 0) == receiver && status == 0);
    ctipc_close(listener);
}

int main(int argc, char **argv)
{
    HOLDS(argc == 2);
    one_kind(argv[1], CTIPC_SEQPACKET);
    one_kind(argv[1], CTIPC_STREAM);
    puts("all came in order");
    return 0;
}
