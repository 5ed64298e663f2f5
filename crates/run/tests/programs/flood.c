/* Two ends of a connection, linked statically, that note what they have done in the first words of a file which they share with
 * the test: `serve NOTES` prints its port and receives one connection after the other; `flood NOTES PORT` sends to it until it
 * is killed, has sent enough, or fails. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ENOUGH = 2000000 };

/* What the test reads, in this order. */
struct notes {
    unsigned long bytes;    /* that a send has returned, or that were received from the last connection */
    unsigned long started;  /* connections that were made or accepted */
    unsigned long ended;    /* connections whose end, or failure, was seen */
    unsigned long wrong;    /* bytes that were not what was sent */
};

static char byte_at(unsigned long n) {
    return (char)(n % 251);
}

static int flood(volatile struct notes *notes, int fd) {
    char part[4096];
    while (notes->bytes < ENOUGH) {
        unsigned long at = notes->bytes;
        for (unsigned long n = 0; n < sizeof part; n++)
            part[n] = byte_at(at + n);
        ssize_t sent = send(fd, part, 1000 + at % 3000, MSG_NOSIGNAL);
        if (sent < 0)
            break;
        notes->bytes += (unsigned long)sent;
    }
    close(fd);
    notes->ended++;
    return 0;
}

static void receive(volatile struct notes *notes, int fd) {
    static char part[65536];
    ssize_t got;
    notes->bytes = 0;
    notes->started++;
    while ((got = recv(fd, part, sizeof part, 0)) > 0) {
        for (ssize_t n = 0; n < got; n++)
            notes->wrong += part[n] != byte_at(notes->bytes + (unsigned long)n);
        notes->bytes += (unsigned long)got;
    }
    close(fd);
    notes->ended++;
}

int main(int count, char **words) {
    int file = open(words[2], O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof(struct notes)))
        return 2;
    volatile struct notes *notes = mmap(NULL, sizeof *notes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    struct sockaddr_in at = {.sin_family = AF_INET};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (count > 3) {
        at.sin_port = htons((unsigned short)atoi(words[3]));
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&at, sizeof at))
            return 1;
        notes->started++;
        return flood(notes, fd);
    }
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    socklen_t len = sizeof at;
    if (bind(listener, (struct sockaddr *)&at, len) || listen(listener, 100) || getsockname(listener, (struct sockaddr *)&at, &len))
        return 2;
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    for (;;) {
        struct pollfd ready = {.fd = listener, .events = POLLIN};
        poll(&ready, 1, -1);
        int fd = accept4(listener, NULL, NULL, 0);
        if (fd >= 0)
            receive(notes, fd);
        else if (errno != EAGAIN)
            return 1;
    }
}
