/* D-Bus: one method call with a byte array per message, without a reply; through a dbus-daemon that the listening end starts for the
 * run, or peer to peer over the same UNIX socket protocol. libdbus, the reference implementation. */
#define _GNU_SOURCE
#include "crossway_contender.h"

#include <dbus/dbus.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define NAME "org.crossway.Contender"
#define PATH "/org/crossway/Contender"

static int through_daemon;
static pid_t daemon_pid = -1;
static DBusServer *server;
static DBusConnection *channel;
static char peer[256];

static void library(char *text, size_t room)
{
    int major, minor, micro;
    dbus_get_version(&major, &minor, &micro);
    snprintf(text, room, "libdbus %d.%d.%d", major, minor, micro);
}

__attribute__((noreturn)) static void failed(const char *what, DBusError *error)
{
    cw_fail("%s: %s", what, error->message ? error->message : "no memory");
}

/* Starts a private bus, whose configuration includes no other one and has no limits that tests would reach. */
static void start_daemon(struct cw_role *role, char *address, size_t room)
{
    char file[600], option[700];
    int out[2];
    snprintf(file, sizeof file, "%s/bus.conf", role->dir);
    FILE *configuration = fopen(file, "we");
    if (!configuration)
        cw_fail("%s: %s", file, strerror(errno));
    fprintf(configuration,
            "<busconfig><type>session</type><listen>unix:path=%s/bus</listen>"
            "<policy context=\"default\"><allow send_destination=\"*\" eavesdrop=\"true\"/><allow eavesdrop=\"true\"/>"
            "<allow own=\"*\"/></policy>"
            "<limit name=\"max_message_size\">134217728</limit></busconfig>\n",
            role->dir);
    fclose(configuration);
    if (pipe2(out, O_CLOEXEC) != 0)
        cw_fail("pipe: %s", strerror(errno));
    snprintf(option, sizeof option, "--config-file=%s", file);
    daemon_pid = fork();
    if (daemon_pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        cw_unpin();
        dup2(out[1], 3);
        execlp("dbus-daemon", "dbus-daemon", option, "--nofork", "--nosyslog", "--print-address=3", (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    ssize_t n = read(out[0], address, room - 1);
    if (n <= 0)
        cw_fail("dbus-daemon does not start; sudo apt-get install dbus");
    address[n] = 0;
    address[strcspn(address, "\n")] = 0;
    close(out[0]);
    cw_server(role, daemon_pid);
}

static void join(const char *address)
{
    DBusError error = DBUS_ERROR_INIT;
    channel = dbus_connection_open_private(address, &error);
    if (!channel)
        failed("connecting", &error);
    dbus_connection_set_exit_on_disconnect(channel, FALSE);
    if (through_daemon && !dbus_bus_register(channel, &error))
        failed("registering at the bus", &error);
}

static void unlimited(void)
{
    dbus_connection_set_max_message_size(channel, 128 << 20);
    dbus_connection_set_max_received_size(channel, 128 << 20);
}

static void met(DBusServer *at, DBusConnection *fresh, void *unused)
{
    (void)at, (void)unused;
    channel = dbus_connection_ref(fresh);
}

/* libdbus expects a main loop; this contender polls the descriptors of a listening server itself. */
static DBusWatch *watch;

static dbus_bool_t add_watch(DBusWatch *fresh, void *unused)
{
    (void)unused;
    watch = fresh;
    return TRUE;
}

static void remove_watch(DBusWatch *old, void *unused)
{
    (void)unused;
    if (watch == old)
        watch = NULL;
}

static int listen_(struct cw_role *role, struct cw_words *offer)
{
    DBusError error = DBUS_ERROR_INIT;
    char address[1024];
    if (through_daemon) {
        start_daemon(role, address, sizeof address);
        join(address);
        cw_offer(offer, "address", "%s", address);
        cw_offer(offer, "name", "%s", dbus_bus_get_unique_name(channel));
        return 0;
    }
    snprintf(address, sizeof address, "unix:path=%s/s", role->dir);
    server = dbus_server_listen(address, &error);
    if (!server)
        failed("listening", &error);
    dbus_server_set_new_connection_function(server, met, NULL, NULL);
    dbus_server_set_watch_functions(server, add_watch, remove_watch, NULL, NULL, NULL);
    char *whole = dbus_server_get_address(server);
    cw_offer(offer, "address", "%s", whole);
    dbus_free(whole);
    return 0;
}

/* Receives the next message with content; NULL when the connection is closed. */
static DBusMessage *next(void)
{
    for (;;) {
        DBusMessage *message = dbus_connection_pop_message(channel);
        if (!message) {
            if (!dbus_connection_read_write(channel, -1))
                return NULL;
            continue;
        }
        if (dbus_message_is_signal(message, DBUS_INTERFACE_LOCAL, "Disconnected")) {
            dbus_message_unref(message);
            return NULL;
        }
        if (dbus_message_is_method_call(message, NAME, "Carry"))
            return message;
        if (dbus_message_is_signal(message, DBUS_INTERFACE_DBUS, "NameOwnerChanged")) {
            const char *name = "", *old = "", *new = "x";
            dbus_message_get_args(message, NULL, DBUS_TYPE_STRING, &name, DBUS_TYPE_STRING, &old, DBUS_TYPE_STRING, &new, DBUS_TYPE_INVALID);
            if (strcmp(name, peer) == 0 && *new == 0) {
                dbus_message_unref(message);
                return NULL;
            }
        }
        dbus_message_unref(message);
    }
}

/* A bus informs subscribers when a member leaves it. */
static void watch_peer(void)
{
    DBusError error = DBUS_ERROR_INIT;
    char rule[400];
    snprintf(rule, sizeof rule, "type='signal',sender='" DBUS_SERVICE_DBUS "',member='NameOwnerChanged',arg0='%s'", peer);
    dbus_bus_add_match(channel, rule, &error);
    if (dbus_error_is_set(&error))
        failed("asking the bus for its members", &error);
}

static int accept_(struct cw_role *role)
{
    (void)role;
    while (!channel) {
        int fd = watch ? dbus_watch_get_unix_fd(watch) : -1;
        fd_set ready;
        FD_ZERO(&ready);
        FD_SET(fd, &ready);
        if (fd < 0 || select(fd + 1, &ready, NULL, NULL, NULL) < 0)
            return -1;
        dbus_watch_handle(watch, DBUS_WATCH_READABLE);
    }
    unlimited();
    DBusMessage *first = next();
    if (!first) {
        errno = EPIPE;
        return -1;
    }
    if (through_daemon) {
        snprintf(peer, sizeof peer, "%s", dbus_message_get_sender(first));
        watch_peer();
    }
    dbus_message_unref(first);
    return 0;
}

static int send_(struct cw_role *role, const void *bytes, size_t len)
{
    (void)role;
    DBusMessage *message = dbus_message_new_method_call(through_daemon ? peer : NULL, PATH, NAME, "Carry");
    if (!message)
        cw_fail("no memory");
    dbus_message_set_no_reply(message, TRUE);
    dbus_message_set_auto_start(message, FALSE);
    if (!dbus_message_append_args(message, DBUS_TYPE_ARRAY, DBUS_TYPE_BYTE, &bytes, (int)len, DBUS_TYPE_INVALID) ||
        !dbus_connection_send(channel, message, NULL))
        cw_fail("no memory");
    dbus_message_unref(message);
    /* libdbus queues without a limit, so a sender waits until the socket has taken its message. */
    dbus_connection_flush(channel);
    if (!dbus_connection_get_is_connected(channel)) {
        errno = EPIPE;
        return -1;
    }
    return 0;
}

static int connect_(struct cw_role *role, const struct cw_words *offer)
{
    join(cw_word(offer, "address"));
    unlimited();
    if (through_daemon) {
        snprintf(peer, sizeof peer, "%s", cw_word(offer, "name"));
        watch_peer();
    }
    return send_(role, "", 0);
}

static long receive(struct cw_role *role, void *bytes, size_t len)
{
    (void)role;
    DBusMessage *message = next();
    const void *content = NULL;
    int n = 0;
    if (!message) {
        errno = EPIPE;
        return -1;
    }
    if (!dbus_message_get_args(message, NULL, DBUS_TYPE_ARRAY, DBUS_TYPE_BYTE, &content, &n, DBUS_TYPE_INVALID))
        cw_fail("a message without content came");
    memcpy(bytes, content, (size_t)n < len ? (size_t)n : len);
    dbus_message_unref(message);
    return n;
}

static void close_(struct cw_role *role)
{
    (void)role;
    dbus_connection_close(channel);
    dbus_connection_unref(channel);
    if (server) {
        dbus_server_disconnect(server);
        dbus_server_unref(server);
    }
    if (daemon_pid > 0) {
        kill(daemon_pid, SIGTERM);
        waitpid(daemon_pid, NULL, 0);
    }
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

int main(int argc, char **argv)
{
    through_daemon = argc > 1 && strcmp(argv[1], "daemon") == 0;
    return cw_main(&contender);
}
