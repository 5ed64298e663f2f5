/* Connects and sends every message back. When the message "fork" arrives, it shares the socket with a child. After
   the parent's death, the child sends every message back, until the connection ends. With the argument "polls", the
   child waits in poll(2) instead of in the receive call. Prints the child's process ID, and "ended" when the child has
   seen the end. */
#include <crossway_tipc.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "holds.h"

enum { SOON = 120000, LEN = 4 };

static void child(ctipc_socket *s, int parent_lives, int polls)
{
    struct pollfd readable = {ctipc_fd(s), POLLIN, 0};
    char data[LEN];
    HOLDS(read(parent_lives, data, 1) == 0);
    for (;;) {
        int64_t len;
        if (polls)
            HOLDS(poll(&readable, 1, -1) == 1);
        len = ctipc_recv(s, data, sizeof data, NULL, polls ? 0 : -1);
        if (len == -EAGAIN)
            continue;
        if (len <= 0)
            break;
        HOLDS(ctipc_send(s, data, (size_t)len, NULL, SOON) == len);
    }
    HOLDS(write(STDOUT_FILENO, "ended\n", 6) == 6);
    _exit(0);
}

int main(int argc, char **argv)
{
    ctipc_socket *s;
    ctipc_address name;
    char data[LEN];
    int lives[2];
    pid_t pid;
    HOLDS(argc == 5);
    /* Neither process outlives a test that fails. */
    alarm(900);
    HOLDS(ctipc_open(strcmp(argv[2], "stream") == 0 ? CTIPC_STREAM : CTIPC_SEQPACKET, argv[1], &s) == 0);
    memset(&name, 0, sizeof name);
    name.family = 30, name.form = CTIPC_SERVICE, name.scope = CTIPC_CLUSTER;
    name.a = 5000, name.b = (uint32_t)atoi(argv[3]);
    HOLDS(ctipc_connect(s, &name, SOON) == 0);
    while (ctipc_recv(s, data, sizeof data, NULL, -1) == LEN) {
        if (memcmp(data, "fork", LEN) == 0) {
            HOLDS(pipe(lives) == 0);
            pid = fork();
            HOLDS(pid >= 0);
            if (pid == 0) {
                alarm(900);
                close(lives[1]);
                child(s, lives[0], strcmp(argv[4], "polls") == 0);
            }
            printf("%ld\n", (long)pid);
            fflush(stdout);
        }
        HOLDS(ctipc_send(s, data, LEN, NULL, SOON) == LEN);
    }
    return 1;
}
