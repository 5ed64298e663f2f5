/* Two programs in one: `hello listen NAME` accepts one channel and echoes its messages; `hello connect NAME` sends
 * messages and prints the answers. */
#include <crossway_channel.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, cchannel_error());
    return 1;
}

static int serve(const char *name) {
    cchannel_listener *listener;
    cchannel *channel;
    char message[256];
    int64_t length;
    if (cchannel_listen(name, NULL, &listener) < 0)
        return failed("listen");
    if (cchannel_accept(listener, 60000, &channel) < 0)
        return failed("accept");
    cchannel_listener_close(listener);
    while ((length = cchannel_recv(channel, message, sizeof message, -1)) >= 0)
        if (cchannel_send(channel, message, (size_t)length, -1) < 0)
            return failed("send");
    if (length != -ESHUTDOWN)
        return failed("recv");
    cchannel_close(channel);
    return 0;
}

static int ask(const char *name) {
    static const char *const transports[] = {"shm-eventfd", "uds-seqpacket", "shm-eventfd"};
    cchannel_options options = {.max_message = 4096, .pollable = 1};
    cchannel *channel;
    char answer[256];
    int64_t length;
    size_t i;
    if (cchannel_connect(name, &options, 60000, &channel) < 0)
        return failed("connect");
    for (i = 0; i < sizeof transports / sizeof *transports; i++) {
        struct pollfd ready = {.fd = cchannel_poll_fd(channel), .events = POLLIN};
        /* Asks for it without waiting: the switch takes place while messages flow. */
        int asked = cchannel_switch(channel, transports[i], 0);
        if (asked < 0 && asked != -ETIMEDOUT)
            return failed("switch");
        do {
            if (cchannel_send(channel, transports[i], strlen(transports[i]), -1) < 0)
                return failed("send");
            do {
                if (poll(&ready, 1, 60000) != 1)
                    return failed("poll");
                length = cchannel_recv(channel, answer, sizeof answer, 0);
            } while (length == -EAGAIN);
            if (length < 0)
                return failed("recv");
        } while (strcmp(cchannel_transport(channel), transports[i]));
        printf("%.*s\n", (int)length, answer);
    }
    cchannel_close(channel);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "listen"))
        return serve(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "connect"))
        return ask(argv[2]);
    fprintf(stderr, "usage: hello listen|connect NAME\n");
    return 2;
}
