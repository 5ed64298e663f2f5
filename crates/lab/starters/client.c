/* Sends numbered messages and checks the answers: ./client ADDRESS COUNT */
#include "channel.h"

static int connected(const struct sockaddr_storage *address, socklen_t length)
{
    for (long pause_ms = 10;; pause_ms = pause_ms < 250 ? pause_ms * 2 : 500) {
        int fd = socket(FAMILY, TYPE | SOCK_CLOEXEC, 0);
        set_up(fd);
        if (connect(fd, (const struct sockaddr *)address, length) == 0)
            return fd;
        fprintf(stderr, "waiting for the server: %s\n", strerror(errno));
        close(fd);
        struct timespec pause = {.tv_nsec = pause_ms * 1000000};
        nanosleep(&pause, NULL);
    }
}

int main(int argc, char **argv)
{
    struct sockaddr_storage address;
    socklen_t length = argc == 3 ? address_of(argv[1], &address) : 0;
    if (!length) {
        fprintf(stderr, "usage: client ADDRESS COUNT\n");
        return 2;
    }
    uint64_t count = strtoull(argv[2], NULL, 10), reconnects = 0;
    char *answer = malloc(LARGEST);
    int fd = connected(&address, length);
    for (uint64_t number = 0; answer && number < count;) {
        ssize_t n = -1;
        if (send_message(fd, &number, sizeof number) == 0)
            n = receive_message(fd, answer);
        if (n != sizeof number || memcmp(answer, &number, sizeof number)) {
            /* The server may or may not have processed this request: it is sent again on a new connection. */
            close(fd);
            fd = connected(&address, length);
            reconnects++;
            puts("reconnected");
            fflush(stdout);
            continue;
        }
        if (++number == 1 || number % 1000 == 0) {
            printf("answered %llu\n", (unsigned long long)number);
            fflush(stdout);
        }
    }
    printf("done %llu, reconnected %llu\n", (unsigned long long)count, (unsigned long long)reconnects);
    free(answer);
    close(fd);
    return 0;
}
