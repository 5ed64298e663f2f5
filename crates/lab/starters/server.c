/* Answers each message with the same bytes: ./server ADDRESS */
#include "channel.h"
#include <pthread.h>

static const char *path;

static void stop(int number)
{
    (void)number;
    if (FAMILY == AF_UNIX)
        unlink(path);
    _exit(0);
}

static void *serve(void *given)
{
    int fd = (int)(intptr_t)given;
    char *message = malloc(LARGEST);
    set_up(fd);
    while (message) {
        ssize_t n = receive_message(fd, message);
        if (n < 0 && errno == EAGAIN)
            continue; /* The client is silent; it may stay connected. */
        if (n < 0 || send_message(fd, message, n))
            break; /* The client closed, died or violated the protocol: only its own connection ends. */
    }
    free(message);
    close(fd);
    return NULL;
}

int main(int argc, char **argv)
{
    struct sockaddr_storage address;
    socklen_t length = argc == 2 ? address_of(argv[1], &address) : 0;
    if (!length) {
        fprintf(stderr, "usage: server ADDRESS\n");
        return 2;
    }
    path = argv[1];
    int listener = socket(FAMILY, TYPE | SOCK_CLOEXEC, 0), on = 1;
    if (FAMILY == AF_UNIX) {
        /* A killed server leaves its path behind; a live one answers. */
        int probe = socket(FAMILY, TYPE | SOCK_CLOEXEC, 0);
        if (connect(probe, (struct sockaddr *)&address, length) == 0) {
            fprintf(stderr, "%s: another server is running\n", path);
            return 1;
        }
        if (errno == ECONNREFUSED)
            unlink(path);
        close(probe);
    } else {
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    }
    if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 64)) {
        perror(path);
        return 1;
    }
    signal(SIGTERM, stop);
    signal(SIGINT, stop);
    puts("ready");
    fflush(stdout);
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        pthread_t thread;
        if (fd < 0)
            continue;
        if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd))
            close(fd);
        else
            pthread_detach(thread);
    }
}
