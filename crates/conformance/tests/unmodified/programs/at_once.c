/* Sends, and looks for the message without waiting and without a pause: it must be there. Also what else must show at once: the
 * ends of connections, connection requests, withdrawn names; and the events that poll reports. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/tipc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROUNDS 50

static const int kinds[] = {SOCK_RDM, SOCK_DGRAM, SOCK_SEQPACKET, SOCK_STREAM};
static const char *const names[] = {"RDM", "DGRAM", "SEQPACKET", "STREAM"};

static struct sockaddr_tipc service(unsigned type, unsigned lower, unsigned upper) {
    struct sockaddr_tipc to = {.family = AF_TIPC, .scope = TIPC_CLUSTER_SCOPE};
    to.addrtype = lower == upper ? TIPC_ADDR_NAME : TIPC_ADDR_NAMESEQ;
    to.addr.nameseq.type = type;
    to.addr.nameseq.lower = lower;
    to.addr.nameseq.upper = lower == upper ? 0 : upper;
    return to;
}

static int opened(int kind) {
    int fd = socket(AF_TIPC, kind | SOCK_NONBLOCK, 0);
    if (fd < 0) exit(2);
    return fd;
}

static int bound(int kind, unsigned type, unsigned instance) {
    struct sockaddr_tipc at = service(type, instance, instance);
    int fd = opened(kind);
    if (bind(fd, (void *)&at, sizeof at)) exit(3);
    return fd;
}

static int sent(int fd, const struct sockaddr_tipc *to) {
    return (int)(to ? sendto(fd, "hello", 5, 0, (const void *)to, sizeof *to) : send(fd, "hello", 5, 0));
}

static const char *got(int fd, int flags) {
    char bytes[16];
    int len = (int)recv(fd, bytes, sizeof bytes, flags | MSG_DONTWAIT);
    static char text[2][16];
    static int turn;
    turn = !turn;
    if (len < 0) return strerrorname_np(errno);
    snprintf(text[turn], sizeof text[turn], "%d", len);
    return text[turn];
}

static int polled(int fd, int events) {
    struct pollfd one = {.fd = fd, .events = (short)events};
    poll(&one, 1, 0);
    return (unsigned short)one.revents;
}

static int selected(int fd) {
    fd_set in;
    struct timeval none = {0, 0};
    FD_ZERO(&in);
    FD_SET(fd, &in);
    return select(fd + 1, &in, NULL, NULL, &none);
}

static void messages(int n) {
    struct sockaddr_tipc name = service(18960, 1, 1), range = service(18960, 0, 9), address;
    socklen_t len = sizeof address;
    struct epoll_event event = {.events = EPOLLIN};
    int found[6] = {0}, pair[2], epoll = epoll_create1(0);
    int one = bound(kinds[n], 18960, 1), two = bound(kinds[n], 18960, 2), from = opened(kinds[n]);
    getsockname(one, (void *)&address, &len);
    epoll_ctl(epoll, EPOLL_CTL_ADD, one, &event);
    if (socketpair(AF_TIPC, kinds[n] | SOCK_NONBLOCK, 0, pair)) exit(4);
    for (int round = 0; round < ROUNDS; round++) {
        sent(from, &name);
        found[0] += strcmp(got(one, MSG_PEEK), "5") == 0 && strcmp(got(one, 0), "5") == 0;
        sent(from, &address);
        found[1] += polled(one, POLLIN) == POLLIN && strcmp(got(one, 0), "5") == 0;
        sent(from, &range);
        found[2] += strcmp(got(two, 0), "5") == 0 && strcmp(got(one, 0), "5") == 0;
        sent(from, &name);
        found[3] += selected(one) == 1 && strcmp(got(one, 0), "5") == 0;
        sent(from, &name);
        found[4] += epoll_wait(epoll, &event, 1, 0) == 1 && strcmp(got(one, 0), "5") == 0;
        sent(pair[0], NULL);
        found[5] += strcmp(got(pair[1], 0), "5") == 0;
    }
    printf("%s by name %d, by address %d, to several %d, select %d, epoll %d, pair %d\n", names[n], found[0], found[1],
           found[2], found[3], found[4], found[5]);
    len = sizeof address;
    printf("%s end of a pair: getpeername %d", names[n], getpeername(pair[0], (void *)&address, &len));
    printf(" bind %d", bind(pair[0], (void *)&name, sizeof name));
    printf(" %s\n", strerrorname_np(errno));
    printf("%s name gone: %d", names[n], close(one));
    printf(" %d", sent(from, &name));
    printf(" %s\n", strerrorname_np(errno));
    printf("%s shut down: %d", names[n], shutdown(two, SHUT_RDWR));
    printf(" %#x\n", polled(two, POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM | POLLWRBAND | POLLRDHUP));
    close(two), close(from), close(pair[0]), close(pair[1]), close(epoll);
}

static void connections(int n) {
    struct sockaddr_tipc name = service(18961, 1, 1), range = service(18962, 0, 9);
    int accepted = 0, writable = 0, there = 0, ended = 0, refused = 0, several;
    int listener = opened(kinds[n]);
    printf("%s listening: %d", names[n], listen(listener, 5));
    printf(" %d %s\n", bind(listener, (void *)&name, sizeof name), got(listener, 0));
    for (int round = 0; round < ROUNDS; round++) {
        int here = opened(kinds[n]), other;
        if (connect(here, (void *)&name, sizeof name) == 0 || errno != EINPROGRESS) exit(5);
        other = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
        accepted += other >= 0;
        writable += polled(here, POLLOUT) == POLLOUT;
        sent(here, NULL);
        there += strcmp(got(other, 0), "5") == 0;
        close(here);
        ended += strcmp(got(other, 0), "ECONNRESET") == 0;
        refused += sent(other, NULL) < 0 && errno == EPIPE;
        close(other);
    }
    printf("%s accepted %d, connected %d, data %d, ended %d, refused %d\n", names[n], accepted, writable, there, ended, refused);
    several = opened(kinds[n]);
    printf("%s to a range: %d", names[n], sent(several, &range));
    printf(" %s\n", strerrorname_np(errno));
    close(several), close(listener);
}

static void events(int n) {
    const int every = POLLIN | POLLPRI | POLLOUT | POLLRDNORM | POLLRDBAND | POLLWRNORM | POLLWRBAND | POLLRDHUP;
    int pair[2], lone = opened(kinds[n]);
    if (socketpair(AF_TIPC, kinds[n] | SOCK_NONBLOCK, 0, pair)) exit(6);
    printf("%s events: %#x %#x", names[n], polled(lone, every), polled(pair[0], every));
    sent(pair[1], NULL);
    printf(" %#x %#x\n", polled(pair[0], every), polled(pair[0], every & ~POLLOUT));
    close(lone), close(pair[0]), close(pair[1]);
}

int main(void) {
    alarm(120);
    for (int n = 0; n < 4; n++) {
        if (n < 2) messages(n);
        else connections(n);
        events(n);
    }
    return 0;
}
