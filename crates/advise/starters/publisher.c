/* Sends every message to all subscribers: @SERVER_USE@ */
#include "channel.h"
#include <endian.h>

#define KEPT 1024
#define PAUSE_MS 1

struct message {
    uint32_t length;
    unsigned char bytes[64];
};

/* The last messages. Each subscriber has a thread that sends them at the subscriber's pace. One that is slow loses the
   oldest; one that takes nothing for DEADLINE_MS is disconnected. Neither delays the others. */
static struct message kept[KEPT];
static uint64_t published;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;

static void stop(int number)
{
    (void)number;
    channel_remove();
    _exit(0);
}

static void publish(const void *bytes, uint32_t length)
{
    pthread_mutex_lock(&lock);
    struct message *next = &kept[published++ % KEPT];
    next->length = length;
    memcpy(next->bytes, bytes, length);
    pthread_cond_broadcast(&more);
    pthread_mutex_unlock(&lock);
}

/* Waits for the message with this number; continues with the oldest one if that is gone. */
static struct message message_at(uint64_t *number)
{
    pthread_mutex_lock(&lock);
    while (*number == published)
        pthread_cond_wait(&more, &lock);
    if (published - *number > KEPT)
        *number = published - KEPT;
    struct message found = kept[*number % KEPT];
    pthread_mutex_unlock(&lock);
    return found;
}

static void *serve(void *given)
{
    struct channel *c = given;
    pthread_mutex_lock(&lock);
    uint64_t number = published; /* A subscriber begins with the next message. */
    pthread_mutex_unlock(&lock);
    for (;; number++) {
        struct message next = message_at(&number);
        if (send_message(c, next.bytes, next.length))
            break; /* The subscriber closed, died or takes nothing: only its own connection ends. */
    }
    channel_close(c);
    free(c);
    return NULL;
}

static void *accept_all(void *unused)
{
    (void)unused;
    serve_all(serve);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t acceptor;
    if (argc != 2) {
        fprintf(stderr, "usage: @SERVER_USE@\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN); /* A lost peer is an error of the call. */
    if (channel_listen(argv[1]) || pthread_create(&acceptor, NULL, accept_all, NULL)) {
        perror(argv[1]);
        return 1;
    }
    signal(SIGTERM, stop);
    signal(SIGINT, stop);
    fprintf(stderr, "ready\n");
    for (uint64_t number = 0;; number++) {
        uint64_t message = htole64(number); /* What is published; here a number. */
        publish(&message, sizeof message);
        usleep(PAUSE_MS * 1000);
    }
}
