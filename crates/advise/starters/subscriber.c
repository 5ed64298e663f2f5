/* Receives numbered messages and counts what is lost: ./subscriber ADDRESS COUNT */
#include "channel.h"
#include <endian.h>

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: subscriber ADDRESS COUNT\n");
        return 2;
    }
    const char *address = argv[1];
    uint64_t count = strtoull(argv[2], NULL, 10), received = 0, lost = 0, reconnects = 0;
    char *message = malloc(LARGEST);
    struct channel c;
    signal(SIGPIPE, SIG_IGN); /* A lost peer is an error of the call. */
    connected(&c, address);
    uint64_t expected = 0;
    int is_first = 1; /* On this connection. */
    while (message && received < count) {
        ssize_t n = receive_message(&c, message);
        if (n != sizeof expected) {
            /* The publisher closed, died, or has been silent for DEADLINE_MS. */
            channel_close(&c);
            connected(&c, address);
            reconnects++;
            is_first = 1;
            puts("reconnected");
            fflush(stdout);
            continue;
        }
        uint64_t number;
        memcpy(&number, message, sizeof number);
        number = le64toh(number);
        if (!is_first)
            lost += number - expected; /* This subscriber was too slow. */
        expected = number + 1;
        is_first = 0;
        if (++received == 1 || received % 1000 == 0) {
            printf("received %llu\n", (unsigned long long)received);
            fflush(stdout);
        }
    }
    printf("done %llu, lost %llu, reconnected %llu\n", (unsigned long long)count, (unsigned long long)lost,
           (unsigned long long)reconnects);
    channel_close(&c);
    free(message);
    return 0;
}
