/* Answers each message with the same bytes: @SERVER_USE@ */
#include "channel.h"

static void stop(int number)
{
    (void)number;
    channel_remove();
    _exit(0);
}

static void *serve(void *given)
{
    struct channel *c = given;
    char *message = malloc(LARGEST);
@if dgram
    int silent = 0; /* Nothing reports the death of a client: one that is silent for a minute has gone. */
@end
    while (message) {
        ssize_t n = receive_message(c, message);
        if (n < 0 && errno == ETIMEDOUT@SILENT@)
            continue; /* The client is silent; it may stay connected. */
        if (n < 0 || send_message(c, message, n))
            break; /* The client closed, died or violated the protocol: only its own connection ends. */
@if dgram
        silent = 0;
@end
    }
    free(message);
    channel_close(c);
    free(c);
@if pipe
    exit(0);
@end
    return NULL;
}

int main(int argc, char **argv)
{
    const char *address = argc > 1 ? argv[1] : "@NO_ADDRESS@";
    if (!*address || argc > 2) {
        fprintf(stderr, "usage: @SERVER_USE@\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN); /* A lost peer is an error of the call. */
    if (channel_listen(address)) {
        perror(address);
        return 1;
    }
    signal(SIGTERM, stop);
    signal(SIGINT, stop);
    fprintf(stderr, "ready\n");
    serve_all(serve);
}
