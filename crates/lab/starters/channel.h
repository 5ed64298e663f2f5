/* The channel of both programs: @MECHANISM@, whole messages, a deadline on every call. */
#ifndef CHANNEL_H
#define CHANNEL_H
#define _GNU_SOURCE
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define FAMILY @FAMILY_C@
#define TYPE @TYPE@
#define NODELAY @NODELAY_C@
#define LARGEST @LARGEST@
#define DEADLINE_S 2

/* Parses a path for UNIX sockets, HOST:PORT for TCP. Returns the length, or 0. */
static socklen_t address_of(const char *text, struct sockaddr_storage *to)
{
    memset(to, 0, sizeof *to);
    if (FAMILY == AF_UNIX) {
        struct sockaddr_un *un = (struct sockaddr_un *)to;
        if (strlen(text) >= sizeof un->sun_path)
            return 0;
        un->sun_family = AF_UNIX;
        strcpy(un->sun_path, text);
        return sizeof *un;
    }
    char host[256];
    const char *colon = strrchr(text, ':');
    if (!colon || (size_t)(colon - text) >= sizeof host)
        return 0;
    memcpy(host, text, colon - text);
    host[colon - text] = 0;
    struct addrinfo wanted = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
    if (getaddrinfo(host, colon + 1, &wanted, &found))
        return 0;
    socklen_t length = found->ai_addrlen;
    memcpy(to, found->ai_addr, length);
    freeaddrinfo(found);
    return length;
}

/* A send that finds no room waits, which provides back-pressure. No call waits longer than the deadline. */
static void set_up(int fd)
{
    struct timeval deadline = {.tv_sec = DEADLINE_S};
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &deadline, sizeof deadline);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof deadline);
    if (NODELAY)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* Sends all parts, in one call if there is room. If the length were sent alone, the rest would wait for its
   acknowledgement (Nagle). */
static int write_all(int fd, struct iovec *parts, size_t count)
{
    while (count) {
        struct msghdr header = {.msg_iov = parts, .msg_iovlen = count};
        ssize_t n = sendmsg(fd, &header, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        for (; count && (size_t)n >= parts->iov_len; parts++, count--)
            n -= parts->iov_len;
        if (count) {
            parts->iov_base = (char *)parts->iov_base + n;
            parts->iov_len -= n;
        }
    }
    return 0;
}

static int read_all(int fd, void *bytes, size_t count)
{
    for (size_t done = 0; done < count;) {
        ssize_t n = recv(fd, (char *)bytes + done, count - done, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = ECONNRESET;
        if (n <= 0)
            return -1;
        done += n;
    }
    return 0;
}

/* Sends a message; returns -1 with errno on failure, EAGAIN if the deadline passed. */
static int send_message(int fd, const void *message, uint32_t length)
{
    if (length > LARGEST) {
        errno = EMSGSIZE;
        return -1;
    }
    struct iovec parts[2] = {{&length, sizeof length}, {(void *)message, length}};
    size_t without_length = TYPE != SOCK_STREAM;
    return write_all(fd, parts + without_length, 2 - without_length);
}

/* Receives a message into a buffer of LARGEST bytes; returns its length, or -1 with errno. */
static ssize_t receive_message(int fd, void *message)
{
    uint32_t length;
    if (TYPE != SOCK_STREAM) {
        ssize_t n;
        do
            n = recv(fd, message, LARGEST, 0);
        while (n < 0 && errno == EINTR);
        if (n == 0)
            errno = ECONNRESET;
        return n > 0 ? n : -1;
    }
    if (read_all(fd, &length, sizeof length))
        return -1;
    if (length > LARGEST) {
        errno = EPROTO;
        return -1;
    }
    return read_all(fd, message, length) ? -1 : (ssize_t)length;
}
#endif
