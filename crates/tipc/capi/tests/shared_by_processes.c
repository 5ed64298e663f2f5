/* Processes that share a socket through fork receive from it, and some of them are killed while they receive. Each
   message must be received only once. */
#include <crossway_tipc.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "holds.h"

enum { SOON = 120000, CHILDREN = 3, ROUNDS = 150, BATCH = 100 };

#define STOP UINT32_MAX

static ctipc_socket *server, *client;
static int told[2];
static ctipc_address to;

/* Forwards received messages until told to stop. */
static pid_t receiver(void)
{
    pid_t child = fork();
    uint32_t number = 0;
    HOLDS(child >= 0);
    if (child != 0)
        return child;
    /* A child must not outlive a parent that died before stopping it. */
    alarm(900);
    for (;;) {
        if (ctipc_recv(server, &number, sizeof number, NULL, -1) != sizeof number)
            _exit(1);
        if (number == STOP)
            _exit(0);
        if (write(told[1], &number, sizeof number) != sizeof number)
            _exit(2);
    }
}

static uint32_t waiting(void)
{
    uint32_t depth = 1;
    HOLDS(ctipc_getsockopt(server, CTIPC_SOCK_RECVQ_DEPTH, &depth) == 0);
    return depth;
}

static void let_them_read(void)
{
    const struct timespec moment = {0, 200000};
    while (waiting() != 0)
        nanosleep(&moment, NULL);
}

int main(int argc, char **argv)
{
    static unsigned char seen[ROUNDS * BATCH];
    pid_t children[CHILDREN];
    uint32_t number, sent = 0, came = 0, killed = 0;
    struct timespec moment = {0, 0};
    int round, n, status;
    HOLDS(argc == 2);
    alarm(900);
    HOLDS(pipe(told) == 0);
    HOLDS(ctipc_open(CTIPC_RDM, argv[1], &server) == 0 && ctipc_open(CTIPC_RDM, argv[1], &client) == 0);
    memset(&to, 0, sizeof to);
    to.family = 30, to.form = CTIPC_SERVICE_RANGE, to.scope = CTIPC_CLUSTER, to.a = 1000, to.b = to.c = 1;
    HOLDS(ctipc_bind(server, &to) == 0);
    to.form = CTIPC_SERVICE, to.c = 0;
    /* One child is created before the socket is busy, the others after. */
    children[0] = receiver();
    for (n = 0; n < 20; n++) {
        struct pollfd poll_one = {ctipc_fd(server), POLLIN, 0};
        number = STOP - 1;
        HOLDS(ctipc_send(client, &number, sizeof number, &to, SOON) == sizeof number);
        poll(&poll_one, 1, 10);
        ctipc_recv(server, &number, sizeof number, NULL, 0);
        waiting();
    }
    let_them_read();
    for (n = 1; n < CHILDREN; n++)
        children[n] = receiver();
    for (round = 0; round < ROUNDS; round++) {
        for (n = 0; n < BATCH; n++, sent++)
            HOLDS(ctipc_send(client, &sent, sizeof sent, &to, SOON) == sizeof sent);
        if (round % 2) {
            /* At an arbitrary moment of their work. */
            int victim = round / 2 % CHILDREN;
            moment.tv_nsec = round * 977 % 200000;
            nanosleep(&moment, NULL);
            HOLDS(kill(children[victim], SIGKILL) == 0);
            HOLDS(waitpid(children[victim], &status, 0) == children[victim]);
            killed++;
            /* The parent receives too. */
            if (ctipc_recv(server, &number, sizeof number, NULL, 0) == sizeof number)
                HOLDS(write(told[1], &number, sizeof number) == sizeof number);
            children[victim] = receiver();
        }
        let_them_read();
        for (;;) {
            struct pollfd poll_one = {told[0], POLLIN, 0};
            if (poll(&poll_one, 1, 0) != 1)
                break;
            HOLDS(read(told[0], &number, sizeof number) == sizeof number);
            if (number == STOP - 1)
                continue;
            HOLDS(number < sent && !seen[number]);
            seen[number] = 1, came++;
        }
    }
    for (n = 0; n < CHILDREN; n++) {
        number = STOP;
        HOLDS(ctipc_send(client, &number, sizeof number, &to, SOON) == sizeof number);
    }
    for (n = 0; n < CHILDREN; n++) {
        HOLDS(waitpid(children[n], &status, 0) == children[n]);
        HOLDS(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    close(told[1]);
    while (read(told[0], &number, sizeof number) == sizeof number)
        if (number != STOP - 1) {
            HOLDS(number < sent && !seen[number]);
            seen[number] = 1, came++;
        }
    /* A message that a killed process had received and not forwarded is lost with it. */
    HOLDS(came <= sent && sent - came <= killed);
    HOLDS(ctipc_recv(server, &number, sizeof number, NULL, 0) == -EAGAIN);
    ctipc_close(client);
    ctipc_close(server);
    printf("%u of %u came, %u killed\n", (unsigned)came, (unsigned)sent, (unsigned)killed);
    return 0;
}
