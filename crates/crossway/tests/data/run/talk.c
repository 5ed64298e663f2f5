/* talk PORT prints what a client observes of a connection; late PORT does so in a process that its parent has left; serve prints
 * its port and answers one connection with what that has sent; exit N; wait. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int talk(const char *port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(port))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    printf("connect %d\n", connect(fd, (struct sockaddr *)&to, sizeof to));
    printf("again %d %d\n", connect(fd, (struct sockaddr *)&to, sizeof to), errno == EISCONN);
    struct sockaddr_in name;
    socklen_t len = sizeof name;
    printf("own %d", getsockname(fd, (struct sockaddr *)&name, &len));
    printf(" %d %d %s\n", len == sizeof name, name.sin_family == AF_INET, inet_ntoa(name.sin_addr));
    len = 4;
    printf("peer %d", getpeername(fd, (struct sockaddr *)&name, &len));
    printf(" %d %d\n", len == sizeof name, name.sin_port == to.sin_port);
    int on = 1, value = -1;
    printf("set %d\n", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
    len = sizeof value;
    printf("get %d", getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &len));
    printf(" %d %u\n", value, len);
    len = sizeof value;
    printf("domain %d", getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &len));
    printf(" %d\n", value == AF_INET);
    printf("bad %d %d\n", getsockname(fd, NULL, &len), errno == EFAULT);
    printf("write %zd\n", write(fd, "hello", 5));
    shutdown(fd, SHUT_WR);
    char got[64] = "";
    ssize_t part, total = 0;
    while ((part = read(fd, got + total, sizeof got - 1 - (size_t)total)) > 0)
        total += part;
    printf("read %s %zd\n", got, part);
    return 0;
}

static int serve(void) {
    struct sockaddr_in own = {.sin_family = AF_INET};
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t len = sizeof own;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&own, len) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *)&own, &len))
        return 1;
    printf("%d\n", ntohs(own.sin_port));
    fflush(stdout);
    int fd = accept(listener, NULL, NULL);
    char got[64];
    ssize_t part, total = 0;
    while ((part = read(fd, got + total, sizeof got - (size_t)total)) > 0)
        total += part;
    return part < 0 || write(fd, got, (size_t)total) != total;
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    if (!strcmp(what, "talk"))
        return talk(words[2]);
    if (!strcmp(what, "late")) {
        pid_t parent = getpid();
        if (fork())
            return 0;
        while (getppid() == parent)
            usleep(1000);
        usleep(200000);
        return talk(words[2]);
    }
    if (!strcmp(what, "serve"))
        return serve();
    if (!strcmp(what, "exit"))
        return atoi(words[2]);
    puts("waits");
    fflush(stdout);
    for (;;)
        pause();
}
