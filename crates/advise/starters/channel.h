/* The channel of both programs: @MECHANISM@, whole messages, a deadline on every call. */
#ifndef CHANNEL_H
#define CHANNEL_H
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
@if stream pipe fifo
#include <endian.h>
#include <sys/uio.h>
@end
@if stream seqpacket dgram
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
@end
@if tipc
#include <linux/tipc.h>
@end
@if mq
#include <mqueue.h>
@end
@if sysv
#include <sys/ipc.h>
#include <sys/msg.h>
@end
@if library
#include <crossway_channel.h>
@end

#define LARGEST @LARGEST@
#define DEADLINE_MS 2000
#define PATIENCE_S 30

@if library
/* The library waits, frames and notices a peer's death itself. */
struct channel {
    cchannel *open;
};
static const cchannel_options options = {.max_message = LARGEST, .pin = "@TRANSPORT@"};
static cchannel_listener *listener;

static int fail(int64_t result)
{
    errno = result == -ESHUTDOWN ? ECONNRESET : (int)-result;
    return -1;
}

static int channel_listen(const char *address)
{
    int result = cchannel_listen(address, &options, &listener);
    return result < 0 ? fail(result) : 0;
}

static int channel_accept(struct channel *c)
{
    int result = cchannel_accept(listener, -1, &c->open);
    return result < 0 ? fail(result) : 0;
}

static int channel_connect(struct channel *c, const char *address)
{
    int result = cchannel_connect(address, &options, DEADLINE_MS, &c->open);
    return result < 0 ? fail(result) : 0;
}

static int send_message(struct channel *c, const void *message, uint32_t length)
{
    int result = cchannel_send(c->open, message, length, DEADLINE_MS);
    return result < 0 ? fail(result) : 0;
}

static ssize_t receive_message(struct channel *c, void *message)
{
    int64_t result = cchannel_recv(c->open, message, LARGEST, DEADLINE_MS);
    return result < 0 ? fail(result) : result;
}

static void channel_close(struct channel *c)
{
    cchannel_close(c->open);
}

static void channel_remove(void)
{
}
@end
@if stream seqpacket dgram pipe fifo mq sysv
struct channel {
    int in, out; /* A socket is both. */
@if pipe
    pid_t peer; /* The server's process, which the client started. */
@end
@if mq sysv
    pid_t peer; /* The process at the other end, whose death a queue does not report. */
@end
};

@end
@if stream seqpacket dgram pipe fifo mq
static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Waits until a descriptor is ready; returns -1 with ETIMEDOUT when the time is over. */
static int wait_for(int fd, short events, int64_t until_ms)
{
    for (;;) {
        int64_t left = until_ms - now_ms();
        struct pollfd one = {.fd = fd, .events = events};
        int n = poll(&one, 1, left > 0 ? (int)left : 0);
        if (n > 0)
            return 0;
        if (n == 0)
            errno = ETIMEDOUT;
        if (n == 0 || errno != EINTR)
            return -1;
    }
}
@end
@if stream pipe fifo

/* Sends all parts, in one call if there is room. A full channel makes the sender wait. */
static int write_all(int fd, struct iovec *parts, int count, int64_t until_ms)
{
    while (count) {
        ssize_t n = writev(fd, parts, count);
        if (n < 0 && errno == EAGAIN && wait_for(fd, POLLOUT, until_ms) == 0)
            continue;
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

/* Reads exactly `count` bytes. After a part of them, a deadline that passes is EPROTO: the rest cannot be told apart. */
static int read_all(int fd, void *bytes, size_t count, int64_t until_ms)
{
    for (size_t done = 0; done < count;) {
        ssize_t n = read(fd, (char *)bytes + done, count - done);
        if (n > 0) {
            done += n;
            continue;
        }
        if (n == 0) {
            errno = ECONNRESET;
            return -1;
        }
        if (errno == EINTR || (errno == EAGAIN && wait_for(fd, POLLIN, until_ms) == 0))
            continue;
        if (done && errno == ETIMEDOUT)
            errno = EPROTO;
        return -1;
    }
    return 0;
}

/* Sends a message: its length in four bytes, then its bytes. ETIMEDOUT: the channel stayed full; close it. */
static int send_message(struct channel *c, const void *message, uint32_t length)
{
    uint32_t word = htole32(length);
    struct iovec parts[2] = {{&word, sizeof word}, {(void *)message, length}};
    if (length > LARGEST) {
        errno = EMSGSIZE;
        return -1;
    }
    return write_all(c->out, parts, 2, now_ms() + DEADLINE_MS);
}

/* Receives a message into LARGEST bytes. ETIMEDOUT: none has begun, and the channel may be kept. */
static ssize_t receive_message(struct channel *c, void *message)
{
    int64_t until_ms = now_ms() + DEADLINE_MS;
    uint32_t word;
    if (read_all(c->in, &word, sizeof word, until_ms))
        return -1;
    uint32_t length = le32toh(word);
    if (length > LARGEST) {
        errno = EPROTO;
        return -1;
    }
    if (read_all(c->in, message, length, until_ms)) {
        if (errno == ETIMEDOUT)
            errno = EPROTO;
        return -1;
    }
    return length;
}
@end
@if seqpacket dgram

/* Sends a message. An empty one cannot be told from the end of a connection. */
static int send_message(struct channel *c, const void *message, uint32_t length)
{
    int64_t until_ms = now_ms() + DEADLINE_MS;
    if (length == 0 || length > LARGEST) {
        errno = EMSGSIZE;
        return -1;
    }
    while (send(c->out, message, length, MSG_NOSIGNAL) < 0)
        if (errno != EINTR && (errno != EAGAIN || wait_for(c->out, POLLOUT, until_ms)))
            return -1;
    return 0;
}

/* Receives a message into LARGEST bytes. ETIMEDOUT: there was none, and the channel may be kept. */
static ssize_t receive_message(struct channel *c, void *message)
{
    int64_t until_ms = now_ms() + DEADLINE_MS;
    struct iovec room = {.iov_base = message, .iov_len = LARGEST};
    struct msghdr got = {.msg_iov = &room, .msg_iovlen = 1};
    ssize_t n;
    while ((n = recvmsg(c->in, &got, 0)) < 0)
        if (errno != EINTR && (errno != EAGAIN || wait_for(c->in, POLLIN, until_ms)))
            return -1;
    if (n > 0 && !(got.msg_flags & MSG_TRUNC))
        return n;
    errno = n ? EMSGSIZE : ECONNRESET;
    return -1;
}
@end
@if stream seqpacket dgram

static int listener = -1;
@end
@if unix
static const char *path;
@end
@if tipc

/* Parses TYPE:INSTANCE, the name of a service, which is the same on every host. Returns the length, or 0 with errno. */
static socklen_t address_of(const char *text, struct sockaddr_storage *to)
{
    struct sockaddr_tipc *tipc = (struct sockaddr_tipc *)to;
    memset(to, 0, sizeof *to);
    tipc->family = AF_TIPC;
    tipc->addrtype = TIPC_ADDR_NAME;
    tipc->scope = TIPC_CLUSTER_SCOPE;
    if (sscanf(text, "%u:%u", &tipc->addr.name.name.type, &tipc->addr.name.name.instance) == 2)
        return sizeof *tipc;
    errno = EINVAL;
    return 0;
}
@end
@if inet unix

/* Parses a path for UNIX sockets, HOST:PORT otherwise. Returns the length, or 0 with errno. */
static socklen_t address_of(const char *text, struct sockaddr_storage *to)
{
    memset(to, 0, sizeof *to);
    errno = EINVAL;
    if (@FAMILY@ == AF_UNIX) {
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
    struct addrinfo wanted = {.ai_family = @FAMILY@, .ai_socktype = SOCK_STREAM}, *found;
    if (getaddrinfo(host, colon + 1, &wanted, &found))
        return 0;
    socklen_t length = found->ai_addrlen;
    memcpy(to, found->ai_addr, length);
    freeaddrinfo(found);
    return length;
}
@end
@if stream seqpacket dgram

static int new_socket(void)
{
    return socket(@FAMILY@, @TYPE@ | SOCK_NONBLOCK | SOCK_CLOEXEC, @PROTOCOL@);
}

static int channel_of(struct channel *c, int fd)
{
@if nodelay
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
@end
    c->in = c->out = fd;
    return fd < 0 ? -1 : 0;
}

static int give_up(int fd)
{
    int cause = errno;
    close(fd);
    errno = cause;
    return -1;
}

/* Connects; a connect that cannot be completed at once goes on in the background. */
static int connect_by(int fd, const struct sockaddr_storage *to, socklen_t length)
{
    socklen_t size = sizeof(int);
    int cause = 0;
    if (connect(fd, (const struct sockaddr *)to, length) == 0)
        return 0;
    if (errno != EINPROGRESS && errno != EINTR)
        return -1;
    if (wait_for(fd, POLLOUT, now_ms() + DEADLINE_MS))
        return -1;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &cause, &size);
    errno = cause;
    return cause ? -1 : 0;
}

static int channel_listen(const char *address)
{
    struct sockaddr_storage to;
    socklen_t length = address_of(address, &to);
    if (!length || (listener = new_socket()) < 0)
        return -1;
@if unix
    /* A killed server leaves its path behind; a live one answers. */
    int probe = new_socket();
    int alive = connect_by(probe, &to, length) == 0;
    struct stat found;
    if (!alive && errno == ECONNREFUSED && lstat(address, &found) == 0 && S_ISSOCK(found.st_mode))
        unlink(address);
    close(probe);
    if (alive) {
        errno = EADDRINUSE;
        return -1;
    }
@end
@if inet
    int on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
@end
    if (bind(listener, (struct sockaddr *)&to, length))
        return -1;
@if unix
    path = address;
@end
@if stream seqpacket
    return listen(listener, 64);
@end
@if dgram
    return 0;
@end
}
@end
@if stream seqpacket

static int channel_accept(struct channel *c)
{
    if (wait_for(listener, POLLIN, INT64_MAX / 2))
        return -1;
    return channel_of(c, accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

static int channel_connect(struct channel *c, const char *address)
{
    struct sockaddr_storage to;
    socklen_t length = address_of(address, &to);
    int fd = length ? new_socket() : -1;
    if (fd < 0)
        return -1;
    return connect_by(fd, &to, length) ? give_up(fd) : channel_of(c, fd);
}
@end
@if dgram

/* Makes a socket with an address that the system chooses. */
static int bound_socket(void)
{
@if tipc
    return new_socket(); /* Each has a port of its own. */
@end
@if inet unix
    struct sockaddr_storage any = {.ss_family = @FAMILY@};
@end
@if inet
    ((struct sockaddr_in *)&any)->sin_addr.s_addr = htonl(INADDR_ANY);
    socklen_t length = sizeof(struct sockaddr_in);
@end
@if unix
    socklen_t length = sizeof(sa_family_t);
@end
@if inet unix
    int fd = new_socket();
    return fd >= 0 && bind(fd, (struct sockaddr *)&any, length) ? give_up(fd) : fd;
@end
}

/* Each client gets a socket of its own, which is connected to the client's, so that it receives from nobody else: the
   server answers a greeting from it, and the client connects to the answer's source. */
static int channel_accept(struct channel *c)
{
    for (;;) {
        struct sockaddr_storage from;
        socklen_t length = sizeof from;
        char greeting;
        if (wait_for(listener, POLLIN, INT64_MAX / 2))
            return -1;
        if (recvfrom(listener, &greeting, 1, 0, (struct sockaddr *)&from, &length) != 1)
            continue;
        int fd = bound_socket();
        if (fd < 0)
            return -1;
        if (connect(fd, (struct sockaddr *)&from, length) == 0 && send(fd, "", 1, MSG_NOSIGNAL) == 1)
            return channel_of(c, fd);
        close(fd); /* The client has gone meanwhile. */
    }
}

static int channel_connect(struct channel *c, const char *address)
{
    struct sockaddr_storage to;
    socklen_t length = address_of(address, &to);
    int fd = length ? bound_socket() : -1;
    char answer;
    if (fd < 0)
        return -1;
    if (sendto(fd, "", 1, 0, (struct sockaddr *)&to, length) != 1)
        return give_up(fd);
    if (wait_for(fd, POLLIN, now_ms() + DEADLINE_MS))
        return give_up(fd);
    length = sizeof to;
    if (recvfrom(fd, &answer, 1, 0, (struct sockaddr *)&to, &length) != 1)
        return give_up(fd);
    return connect(fd, (struct sockaddr *)&to, length) ? give_up(fd) : channel_of(c, fd);
}
@end
@if stream seqpacket dgram

static void channel_close(struct channel *c)
{
    close(c->in);
}

static void channel_remove(void)
{
@if unix
    if (path)
        unlink(path);
@end
}
@end
@if pipe

/* The client starts the server, whose standard input and output are the two pipes. */
static int channel_listen(const char *address)
{
    (void)address;
    return 0;
}

static int channel_accept(struct channel *c)
{
    static int accepted;
    if (accepted++) {
        pause(); /* There is one client; the program ends with it. */
        return -1;
    }
    /* Standard output is the channel: whatever else the program prints must not get into it. */
    *c = (struct channel){.in = fcntl(0, F_DUPFD_CLOEXEC, 3), .out = fcntl(1, F_DUPFD_CLOEXEC, 3)};
    dup2(2, 1);
    fcntl(c->in, F_SETFL, O_NONBLOCK);
    fcntl(c->out, F_SETFL, O_NONBLOCK);
    return 0;
}

static int channel_connect(struct channel *c, const char *address)
{
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC))
        return -1;
    if (pipe2(from, O_CLOEXEC)) {
        close(to[0]);
        close(to[1]);
        return -1;
    }
    c->peer = fork();
    if (c->peer == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        char command[4096];
        snprintf(command, sizeof command, "exec %s", address);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    c->in = from[0];
    c->out = to[1];
    fcntl(c->in, F_SETFL, O_NONBLOCK);
    fcntl(c->out, F_SETFL, O_NONBLOCK);
    return c->peer < 0 ? -1 : 0;
}

static void channel_close(struct channel *c)
{
    close(c->in);
    close(c->out);
    /* The server ends when its standard input does; one that does not is killed. */
    for (int64_t until_ms = now_ms() + DEADLINE_MS; c->peer > 0 && waitpid(c->peer, NULL, WNOHANG) == 0;) {
        if (now_ms() >= until_ms)
            kill(c->peer, SIGKILL);
        usleep(1000);
    }
}

static void channel_remove(void)
{
}
@end
@if fifo

static int listener = -1;
static const char *path;

/* A client creates two FIFOs named after its process, and sends its number to the server's. Both are removed as soon
   as the two processes have opened them, so nothing is left behind however a process ends. */
static void names_of(char names[2][512], const char *address, pid_t client)
{
    snprintf(names[0], 512, "%s.%d.request", address, (int)client);
    snprintf(names[1], 512, "%s.%d.reply", address, (int)client);
}
@end
@if fifo

static int channel_listen(const char *address)
{
    struct stat found;
    if (mkfifo(address, 0600) && errno != EEXIST)
        return -1;
    /* Open for writing as well: otherwise the end of each client would be the end of the FIFO. */
    listener = open(address, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    if (listener < 0 || fstat(listener, &found))
        return -1;
    if (!S_ISFIFO(found.st_mode) || found.st_uid != geteuid()) {
        errno = EEXIST;
        return -1;
    }
    path = address;
    return 0;
}

static int channel_accept(struct channel *c)
{
    for (;;) {
        int32_t client;
        char names[2][512];
        if (wait_for(listener, POLLIN, INT64_MAX / 2))
            return -1;
        if (read(listener, &client, sizeof client) != sizeof client || client <= 0)
            continue;
        names_of(names, path, client);
        c->in = open(names[0], O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
        c->out = open(names[1], O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
        unlink(names[0]);
        unlink(names[1]);
        if (c->in >= 0 && c->out >= 0 && write(c->out, "", 1) == 1)
            return 0;
        close(c->in); /* The client has gone meanwhile. */
        close(c->out);
    }
}

static int channel_connect(struct channel *c, const char *address)
{
    char names[2][512], greeting;
    int32_t self = getpid();
    int server = open(address, O_WRONLY | O_NONBLOCK | O_CLOEXEC); /* ENXIO: no server reads. */
    if (server < 0)
        return -1;
    names_of(names, address, self);
    unlink(names[0]);
    unlink(names[1]);
    *c = (struct channel){.in = -1, .out = -1};
    int reader = -1;
    if (mkfifo(names[0], 0600) == 0 && mkfifo(names[1], 0600) == 0) {
        /* A FIFO can be opened for writing only while there is a reader. */
        reader = open(names[0], O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        c->out = open(names[0], O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        c->in = open(names[1], O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    }
    int met = c->in >= 0 && c->out >= 0 && write(server, &self, sizeof self) == sizeof self &&
              wait_for(c->in, POLLIN, now_ms() + DEADLINE_MS) == 0 && read(c->in, &greeting, 1) == 1;
    int cause = errno;
    close(server);
    close(reader); /* From here on only the server reads, so that its death is EPIPE. */
    if (met)
        return 0;
    unlink(names[0]);
    unlink(names[1]);
    close(c->in);
    close(c->out);
    errno = cause;
    return -1;
}

static void channel_close(struct channel *c)
{
    close(c->in);
    close(c->out);
}

static void channel_remove(void)
{
    if (path)
        unlink(path);
}
@end
@if mq

/* A queue keeps whole messages. It is a descriptor on Linux, so poll works. */
static int send_message(struct channel *c, const void *message, uint32_t length)
{
    int64_t until_ms = now_ms() + DEADLINE_MS;
    while (mq_send(c->out, message, length, 0))
        if (errno != EINTR && (errno != EAGAIN || wait_for(c->out, POLLOUT, until_ms)))
            return -1;
    return 0;
}

/* Receives a message into LARGEST bytes. ETIMEDOUT: there was none, and the channel may be kept. */
static ssize_t receive_message(struct channel *c, void *message)
{
    int64_t until_ms = now_ms() + DEADLINE_MS;
    ssize_t n;
    while ((n = mq_receive(c->in, message, LARGEST, NULL)) < 0)
        if (errno != EINTR && (errno != EAGAIN || wait_for(c->in, POLLIN, until_ms))) {
            if (errno == ETIMEDOUT && kill(c->peer, 0) && errno == ESRCH)
                errno = ECONNRESET;
            return -1;
        }
    return n;
}

static mqd_t listener = -1;
static const char *path;

/* A client creates two queues named after its process, and sends its number to the server's queue. Both are removed as
   soon as the two processes have opened them, so nothing is left behind however a process ends. */
static void names_of(char names[2][256], const char *address, pid_t client)
{
    snprintf(names[0], 256, "%.200s.%d.request", address, (int)client);
    snprintf(names[1], 256, "%.200s.%d.reply", address, (int)client);
}

/* Opens a queue for few messages, because a user's queues may take only RLIMIT_MSGQUEUE bytes altogether. */
static mqd_t new_queue(const char *name, int flags, long largest)
{
    struct mq_attr size = {.mq_maxmsg = 4, .mq_msgsize = largest};
    return mq_open(name, flags | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0600, &size);
}

static int channel_listen(const char *address)
{
    listener = new_queue(address, O_RDONLY, sizeof(int32_t));
    path = address;
    return listener < 0 ? -1 : 0;
}

static int channel_accept(struct channel *c)
{
    for (;;) {
        int32_t client, self = getpid();
        char names[2][256];
        if (wait_for(listener, POLLIN, INT64_MAX / 2))
            return -1;
        if (mq_receive(listener, (char *)&client, sizeof client, NULL) != sizeof client || client <= 0)
            continue;
        names_of(names, path, client);
        c->peer = client;
        c->in = mq_open(names[0], O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        c->out = mq_open(names[1], O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        mq_unlink(names[0]);
        mq_unlink(names[1]);
        if (c->in >= 0 && c->out >= 0 && mq_send(c->out, (char *)&self, sizeof self, 0) == 0)
            return 0;
        mq_close(c->in); /* The client has gone meanwhile. */
        mq_close(c->out);
    }
}

static void channel_close(struct channel *c)
{
    mq_close(c->in);
    mq_close(c->out);
}

static int channel_connect(struct channel *c, const char *address)
{
    static char greeting[LARGEST];
    char names[2][256];
    int32_t self = getpid();
    mqd_t server = mq_open(address, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (server < 0)
        return -1;
    names_of(names, address, self);
    c->peer = self;
    mq_unlink(names[0]); /* Of an earlier process of this number. */
    mq_unlink(names[1]);
    c->out = new_queue(names[0], O_WRONLY | O_EXCL, LARGEST);
    c->in = new_queue(names[1], O_RDONLY | O_EXCL, LARGEST);
    if (c->in >= 0 && c->out >= 0 && mq_send(server, (char *)&self, sizeof self, 0) == 0 &&
        receive_message(c, greeting) == sizeof self) {
        memcpy(&self, greeting, sizeof self);
        c->peer = self;
        mq_close(server);
        return 0;
    }
    int cause = errno;
    mq_close(server);
    mq_unlink(names[0]);
    mq_unlink(names[1]);
    channel_close(c);
    errno = cause;
    return -1;
}

static void channel_remove(void)
{
    if (path)
        mq_unlink(path);
}
@end
@if sysv

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

/* Letters of other kinds are in the server's queue only: KEPT and above, each with the server's process and the two
   queues of a client. If both ends are killed, nothing else tells the next server which queues to remove. */
enum { MESSAGE = 1, KEPT = 2 };

struct letter {
    long kind;
    char bytes[LARGEST];
};

static int listener = -1;
/* The queues of open channels, which nothing but IPC_RMID removes: for the end of the program. */
static int owned[256];
static pthread_mutex_t owning = PTHREAD_MUTEX_INITIALIZER;

static void own(int from, int to)
{
    pthread_mutex_lock(&owning);
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        if (owned[i] == from) {
            owned[i] = to;
            break;
        }
    pthread_mutex_unlock(&owning);
}

static void interrupted(int number)
{
    (void)number;
}

/* Begins a call that may sleep until the deadline. A queue has no descriptor for poll: a timer interrupts the calling
   thread's call, each millisecond from the deadline on, since a first signal may come before the call. */
static int begin_sleep(timer_t *timer)
{
    struct sigaction action = {.sa_handler = interrupted};
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    struct itimerspec when = {
        .it_value = {.tv_sec = DEADLINE_MS / 1000, .tv_nsec = DEADLINE_MS % 1000 * 1000000 + 1},
        .it_interval = {.tv_nsec = 1000000},
    };
    event.sigev_notify_thread_id = gettid();
    if (sigaction(SIGUSR1, &action, NULL) || timer_create(CLOCK_MONOTONIC, &event, timer))
        return -1;
    return timer_settime(*timer, 0, &when, NULL);
}

/* Ends it: an interruption is the deadline's, and a queue that was removed is a connection that was closed. */
static void end_sleep(timer_t timer)
{
    int cause = errno;
    timer_delete(timer);
    errno = cause == EINTR ? ETIMEDOUT : cause == EIDRM || cause == EINVAL ? ECONNRESET : cause;
}

static int put_letter(int queue, const struct letter *letter, uint32_t length)
{
    timer_t timer;
    if (msgsnd(queue, letter, length, IPC_NOWAIT) == 0)
        return 0;
    if (errno != EAGAIN || begin_sleep(&timer)) {
        errno = errno == EIDRM ? ECONNRESET : errno;
        return -1;
    }
    int result = msgsnd(queue, letter, length, 0);
    end_sleep(timer);
    return result;
}

static ssize_t take_letter(int queue, struct letter *letter)
{
    timer_t timer;
    ssize_t n = msgrcv(queue, letter, LARGEST, 0, IPC_NOWAIT);
    if (n >= 0)
        return n;
    if (errno != ENOMSG || begin_sleep(&timer)) {
        errno = errno == EIDRM || errno == EINVAL ? ECONNRESET : errno;
        return -1;
    }
    n = msgrcv(queue, letter, LARGEST, 0, 0);
    end_sleep(timer);
    return n;
}

/* Sends a message. A full queue makes the sender wait. */
static int send_message(struct channel *c, const void *message, uint32_t length)
{
    struct letter letter = {.kind = MESSAGE};
    if (length > LARGEST) {
        errno = EMSGSIZE;
        return -1;
    }
    memcpy(letter.bytes, message, length);
    return put_letter(c->out, &letter, length);
}

/* Receives a message into LARGEST bytes. ETIMEDOUT: there was none, and the channel may be kept. */
static ssize_t receive_message(struct channel *c, void *message)
{
    struct letter letter;
    ssize_t n = take_letter(c->in, &letter);
    if (n >= 0)
        memcpy(message, letter.bytes, n);
    else if (errno == ETIMEDOUT && kill(c->peer, 0))
        errno = errno == ESRCH ? ECONNRESET : ETIMEDOUT;
    return n;
}

/* The key of the server's queue: a number that no other program uses, such as 0x5150cafe. */
static int queue_of(const char *address, int flags)
{
    char *end;
    key_t key = (key_t)strtoul(address, &end, 0);
    if (!*address || *end || key == IPC_PRIVATE) {
        errno = EINVAL;
        return -1;
    }
    return msgget(key, 0600 | flags);
}

static int channel_listen(const char *address)
{
    struct msqid_ds found;
    listener = queue_of(address, IPC_CREAT);
    if (listener < 0 || msgctl(listener, IPC_STAT, &found))
        return -1;
    if (found.msg_perm.uid != geteuid()) {
        errno = EEXIST;
        return -1;
    }
    /* The queues of servers that were killed. A client that still runs is told, and connects again. */
    for (msgqnum_t left = found.msg_qnum; left > 0; left--) {
        struct letter letter;
        int32_t kept[3];
        if (msgrcv(listener, &letter, LARGEST, MESSAGE, MSG_EXCEPT | IPC_NOWAIT) != sizeof kept)
            break;
        memcpy(kept, letter.bytes, sizeof kept);
        if (kill(kept[0], 0) && errno == ESRCH) {
            msgctl(kept[1], IPC_RMID, NULL);
            msgctl(kept[2], IPC_RMID, NULL);
        } else {
            msgsnd(listener, &letter, sizeof kept, IPC_NOWAIT);
        }
    }
    return 0;
}

/* A client makes two queues, and sends their numbers and its own to the server's queue. Either end removes both. */
static int channel_accept(struct channel *c)
{
    for (;;) {
        struct letter letter;
        int32_t greeting[3], self = getpid();
        if (msgrcv(listener, &letter, LARGEST, MESSAGE, 0) != sizeof greeting) {
            if (errno == EIDRM || errno == EINVAL)
                return -1;
            continue;
        }
        memcpy(greeting, letter.bytes, sizeof greeting);
        *c = (struct channel){.in = greeting[1], .out = greeting[2], .peer = greeting[0]};
        memcpy(letter.bytes, &self, sizeof self);
        if (c->peer > 0 && put_letter(c->out, &letter, sizeof self) == 0) {
            own(0, c->in);
            own(0, c->out);
            int32_t kept[3] = {self, c->in, c->out};
            letter.kind = (long)KEPT + c->in;
            memcpy(letter.bytes, kept, sizeof kept);
            msgsnd(listener, &letter, sizeof kept, IPC_NOWAIT);
            return 0;
        } /* Otherwise, the client has gone meanwhile. */
    }
}

static void channel_close(struct channel *c)
{
    struct letter letter;
    if (listener >= 0)
        msgrcv(listener, &letter, LARGEST, (long)KEPT + c->in, IPC_NOWAIT);
    msgctl(c->in, IPC_RMID, NULL);
    msgctl(c->out, IPC_RMID, NULL);
    own(c->in, 0);
    own(c->out, 0);
}

static int channel_connect(struct channel *c, const char *address)
{
    int server = queue_of(address, 0);
    if (server < 0)
        return -1;
    *c = (struct channel){.in = msgget(IPC_PRIVATE, 0600), .out = msgget(IPC_PRIVATE, 0600)};
    struct letter letter = {.kind = MESSAGE};
    int32_t greeting[3] = {getpid(), c->out, c->in};
    memcpy(letter.bytes, greeting, sizeof greeting);
    if (c->in >= 0 && c->out >= 0 && msgsnd(server, &letter, sizeof greeting, IPC_NOWAIT) == 0 &&
        take_letter(c->in, &letter) == sizeof(int32_t)) {
        int32_t peer;
        memcpy(&peer, letter.bytes, sizeof peer);
        c->peer = peer;
        return 0;
    }
    int cause = errno;
    channel_close(c);
    errno = cause;
    return -1;
}

static void channel_remove(void)
{
    if (listener >= 0)
        msgctl(listener, IPC_RMID, NULL);
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        if (owned[i])
            msgctl(owned[i], IPC_RMID, NULL);
}
@end

/* Connects; ends the program if nobody listens for PATIENCE_S seconds. */
static void connected(struct channel *c, const char *address)
{
    time_t end = time(NULL) + PATIENCE_S;
    for (long pause_ms = 10; channel_connect(c, address); pause_ms = pause_ms < 250 ? pause_ms * 2 : 500) {
        fprintf(stderr, "waiting for %s: %s\n", address, strerror(errno));
        if (time(NULL) >= end)
            exit(1);
        struct timespec pause = {.tv_nsec = pause_ms * 1000000};
        nanosleep(&pause, NULL);
    }
}

/* Serves each connection in a thread of its own; never returns. */
static void serve_all(void *(*serve)(void *))
{
    for (;;) {
        struct channel *c = malloc(sizeof *c);
        pthread_t thread;
        if (!c || channel_accept(c)) {
            free(c);
            usleep(10000); /* For example too many open files: connections that end make room. */
        } else if (pthread_create(&thread, NULL, serve, c)) {
            channel_close(c);
            free(c);
        } else {
            pthread_detach(thread);
        }
    }
}
#endif
