/* Sends numbered messages and checks the answers: ./client ADDRESS COUNT */
#include "channel.h"
#include <endian.h>

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: client ADDRESS COUNT\n");
        return 2;
    }
    const char *address = argv[1];
    uint64_t count = strtoull(argv[2], NULL, 10), reconnects = 0;
    char *answer = malloc(LARGEST);
    struct channel c;
    signal(SIGPIPE, SIG_IGN); /* A lost peer is an error of the call. */
    connected(&c, address);
    for (uint64_t number = 0; answer && number < count;) {
        uint64_t request = htole64(number);
        ssize_t n = -1;
        if (send_message(&c, &request, sizeof request) == 0)
            n = receive_message(&c, answer);
        if (n != sizeof request || memcmp(answer, &request, sizeof request)) {
            /* The server may or may not have processed this request: it is sent again on a new connection. */
            channel_close(&c);
            connected(&c, address);
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
    channel_close(&c);
    free(answer);
    return 0;
}
