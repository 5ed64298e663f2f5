/* Anonymous pipes, one each way, through the helper: shows the overhead of the helper compared with Crossway's own mechanism `pipe`,
 * and how to write a contender. The other process opens the pipes through /proc. */
#define _GNU_SOURCE
#include "crossway_contender.h"

#include <sys/utsname.h>

struct ends {
    int in, out;
};

static struct ends own = {-1, -1}, others = {-1, -1};

static void library(char *text, size_t room)
{
    struct utsname about;
    uname(&about);
    snprintf(text, room, "linux %s", about.release);
}

static int sized(struct cw_role *role, int fd)
{
    if (role->capacity_bytes > 0 && fcntl(fd, F_SETPIPE_SZ, (int)role->capacity_bytes) < 0)
        return -1;
    cw_fact(role, "pipe_bytes", fcntl(fd, F_GETPIPE_SZ));
    return 0;
}

static int listen_(struct cw_role *role, struct cw_words *offer)
{
    int there[2], back[2];
    (void)role;
    if (pipe2(there, O_CLOEXEC) != 0 || pipe2(back, O_CLOEXEC) != 0)
        return -1;
    own = (struct ends){there[0], back[1]};
    others = (struct ends){back[0], there[1]};
    cw_offer(offer, "in", "/proc/%d/fd/%d", getpid(), others.in);
    cw_offer(offer, "out", "/proc/%d/fd/%d", getpid(), others.out);
    return 0;
}

static int accept_(struct cw_role *role)
{
    char opened;
    /* The other end's pipes must not stay open here, otherwise its death would go unnoticed; it reports when it has opened its own. */
    if (read(own.in, &opened, 1) != 1)
        return -1;
    close(others.in);
    close(others.out);
    return sized(role, own.out);
}

static int connect_(struct cw_role *role, const struct cw_words *offer)
{
    own.in = open(cw_word(offer, "in"), O_RDONLY | O_CLOEXEC);
    own.out = open(cw_word(offer, "out"), O_WRONLY | O_CLOEXEC);
    if (own.in < 0 || own.out < 0 || write(own.out, "o", 1) != 1)
        return -1;
    return sized(role, own.out);
}

static int send_(struct cw_role *role, const void *message, size_t len)
{
    (void)role;
    for (size_t at = 0; at < len;) {
        ssize_t n = write(own.out, (const char *)message + at, len - at);
        if (n < 0)
            return -1;
        at += (size_t)n;
    }
    return 0;
}

static long receive(struct cw_role *role, void *message, size_t len)
{
    (void)role;
    for (size_t at = 0; at < len;) {
        ssize_t n = read(own.in, (char *)message + at, len - at);
        if (n <= 0) {
            if (n == 0)
                errno = EPIPE;
            return -1;
        }
        at += (size_t)n;
    }
    return (long)len;
}

static void close_(struct cw_role *role)
{
    (void)role;
    close(own.in);
    close(own.out);
}

static const struct cw_contender contender = {
    .library = library,
    .listen = listen_,
    .accept = accept_,
    .connect = connect_,
    .send = send_,
    .receive = receive,
    .close = close_,
};

int main(void)
{
    return cw_main(&contender);
}
