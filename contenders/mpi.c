/* MPI: two ranks of one job of Open MPI; MPI_Send and MPI_Recv between them.
 *
 * The ends of a channel are processes that Crossway starts and pins, and the ranks of a job are processes that mpirun starts. Open
 * MPI gives a rank its identity through its environment: mpirun starts this program twice with `rank`. Each of the two passes its
 * environment to one end, which becomes that rank, and waits until the channel is closed. mpirun and the two waiting processes count as servers. */
#define _GNU_SOURCE
#include "crossway_contender.h"

#include <mpi.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#define TAG 1
#define ENVIRONMENT_BYTES (1 << 20)

extern char **environ;

static pid_t mpirun = -1;
static int listener = -1, rank_fd[2] = {-1, -1}, peer_fd = -1, other_rank;
static char memory[600];
static atomic_int closing;

static void library(char *text, size_t room)
{
    char whole[MPI_MAX_LIBRARY_VERSION_STRING];
    int len;
    MPI_Get_library_version(whole, &len);
    whole[strcspn(whole, ",")] = 0;
    snprintf(text, room, "%s", whole);
}

static struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        cw_fail("the path of the socket is too long: %s", path);
    strcpy(address.sun_path, path);
    return address;
}

static int join(const char *path)
{
    struct sockaddr_un address = address_of(path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        return -1;
    return fd;
}

static int whole_write(int fd, const void *from, size_t len)
{
    for (size_t at = 0; at < len;) {
        ssize_t n = send(fd, (const char *)from + at, len - at, MSG_NOSIGNAL);
        if (n <= 0)
            return -1;
        at += (size_t)n;
    }
    return 0;
}

static int whole_read(int fd, void *into, size_t len)
{
    for (size_t at = 0; at < len;) {
        ssize_t n = read(fd, (char *)into + at, len - at);
        if (n <= 0)
            return -1;
        at += (size_t)n;
    }
    return 0;
}

/* The environment variables that Open MPI and PMIx set for a rank; all others belong to the process. */
static int is_identity(const char *variable)
{
    static const char *const prefixes[] = {"OMPI_", "PMIX_", "ORTE_", "OPAL_"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(variable, prefixes[i], strlen(prefixes[i])) == 0)
            return 1;
    return 0;
}

/* Started by mpirun: passes on its identity and waits for the end. */
static int stand_in(const char *path)
{
    static char text[ENVIRONMENT_BYTES];
    uint32_t header[2];
    size_t len = 0;
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    char byte;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int fd = join(path);
    if (fd < 0 || !rank)
        return 1;
    for (char **at = environ; *at; at++) {
        size_t bytes = strlen(*at) + 1;
        if (!is_identity(*at))
            continue;
        if (len + bytes > sizeof text)
            return 1;
        memcpy(text + len, *at, bytes);
        len += bytes;
    }
    header[0] = (uint32_t)atoi(rank);
    header[1] = (uint32_t)len;
    if (whole_write(fd, header, sizeof header) != 0 || whole_write(fd, text, len) != 0)
        return 1;
    /* The end of the connection marks the end of the channel. */
    while (read(fd, &byte, 1) > 0)
        ;
    return 0;
}

static void become(const char *text, size_t len)
{
    for (size_t at = 0; at < len; at += strlen(text + at) + 1) {
        char *variable = strdup(text + at);
        if (!variable || putenv(variable) != 0)
            cw_fail("no memory");
    }
}

/* MPI would wait for ever for a rank that was killed, so a connection between the ends detects that. */
static void *watch(void *unused)
{
    struct pollfd end = {.fd = peer_fd, .events = POLLIN};
    (void)unused;
    while (poll(&end, 1, -1) < 0)
        ;
    if (!atomic_load(&closing)) {
        static const char text[] = "{\"answer\":\"failed\",\"reason\":\"the other rank has ended\"}\n";
        ssize_t written = write(fileno(cw_out), text, sizeof text - 1);
        (void)written;
        _exit(1);
    }
    return NULL;
}

static void init(int own)
{
    pthread_t thread;
    int size = 0, provided;
    other_rank = 1 - own;
    if (pthread_create(&thread, NULL, watch, NULL) != 0)
        cw_fail("pthread_create: %s", strerror(errno));
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
        cw_fail("MPI_Init_thread failed");
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != 2)
        cw_fail("mpirun started %d ranks instead of 2", size);
}

static void start_mpirun(struct cw_role *role, const char *path)
{
    char self[4096], shared[700];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    if (len <= 0)
        cw_fail("/proc/self/exe: %s", strerror(errno));
    self[len] = 0;
    snprintf(memory, sizeof memory, "/dev/shm/%s", role->shm_prefix);
    if (!*role->shm_prefix || mkdir(memory, 0700) != 0)
        cw_fail("mkdir %s: %s", memory, strerror(errno));
    snprintf(shared, sizeof shared, "%s", memory);
    mpirun = fork();
    if (mpirun < 0)
        cw_fail("fork: %s", strerror(errno));
    if (mpirun == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        cw_unpin();
        /* It refuses to run as root without both variables. The only program it runs here is this one. */
        if (geteuid() == 0) {
            setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
            setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
        }
        setenv("TMPDIR", role->dir, 1);
        execlp("mpirun.openmpi", "mpirun", "--np", "2", "--oversubscribe", "--bind-to", "none", "--mca", "orte_tmpdir_base", role->dir,
               "--mca", "btl_vader_backing_directory", shared, self, "rank", path, (char *)NULL);
        _exit(127);
    }
    cw_server(role, mpirun);
}

/* Waits for a connection, but only as long as mpirun runs. */
static int next_connection(void)
{
    struct pollfd ready = {.fd = listener, .events = POLLIN};
    int status;
    for (;;) {
        int n = poll(&ready, 1, 100);
        if (n > 0)
            return accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (n < 0 && errno != EINTR)
            return -1;
        if (waitpid(mpirun, &status, WNOHANG) == mpirun) {
            mpirun = -1;
            cw_fail("mpirun ended (%s %d) before its ranks began; sudo apt-get install openmpi-bin",
                    WIFEXITED(status) ? "status" : "signal", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
        }
    }
}

static char *identity[2];
static uint32_t identity_bytes[2];

static int listen_(struct cw_role *role, struct cw_words *offer)
{
    char path[600];
    snprintf(path, sizeof path, "%s/s", role->dir);
    struct sockaddr_un address = address_of(path);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 4) != 0)
        return -1;
    start_mpirun(role, path);
    for (int i = 0; i < 2; i++) {
        struct ucred peer;
        socklen_t room = sizeof peer;
        uint32_t header[2];
        int fd = next_connection();
        if (fd < 0 || whole_read(fd, header, sizeof header) != 0 || header[0] > 1 || header[1] > ENVIRONMENT_BYTES ||
            rank_fd[header[0]] >= 0)
            cw_fail("a rank that mpirun started did not give its identity");
        rank_fd[header[0]] = fd;
        identity_bytes[header[0]] = header[1];
        identity[header[0]] = malloc(header[1]);
        if (!identity[header[0]] || whole_read(fd, identity[header[0]], header[1]) != 0)
            cw_fail("a rank that mpirun started did not give its identity");
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &room) == 0)
            cw_server(role, peer.pid);
    }
    cw_offer(offer, "socket", "%s", path);
    return 0;
}

static int accept_(struct cw_role *role)
{
    (void)role;
    peer_fd = next_connection();
    if (peer_fd < 0 || whole_write(peer_fd, &identity_bytes[1], sizeof identity_bytes[1]) != 0 ||
        whole_write(peer_fd, identity[1], identity_bytes[1]) != 0)
        return -1;
    become(identity[0], identity_bytes[0]);
    init(0);
    return 0;
}

static int connect_(struct cw_role *role, const struct cw_words *offer)
{
    uint32_t len;
    (void)role;
    peer_fd = join(cw_word(offer, "socket"));
    if (peer_fd < 0 || whole_read(peer_fd, &len, sizeof len) != 0 || len > ENVIRONMENT_BYTES)
        return -1;
    char *text = malloc(len);
    if (!text || whole_read(peer_fd, text, len) != 0)
        return -1;
    become(text, len);
    free(text);
    init(1);
    return 0;
}

static int send_(struct cw_role *role, const void *bytes, size_t len)
{
    (void)role;
    return MPI_Send(bytes, (int)len, MPI_BYTE, other_rank, TAG, MPI_COMM_WORLD) == MPI_SUCCESS ? 0 : -1;
}

static long receive(struct cw_role *role, void *bytes, size_t len)
{
    MPI_Status status;
    int got = 0;
    (void)role;
    if (MPI_Recv(bytes, (int)len, MPI_BYTE, other_rank, TAG, MPI_COMM_WORLD, &status) != MPI_SUCCESS)
        return -1;
    MPI_Get_count(&status, MPI_BYTE, &got);
    return got;
}

static void close_(struct cw_role *role)
{
    (void)role;
    atomic_store(&closing, 1);
    /* Waits until the other rank has reached this point, too. */
    MPI_Finalize();
    if (mpirun > 0) {
        close(rank_fd[0]);
        close(rank_fd[1]);
        waitpid(mpirun, NULL, 0);
        rmdir(memory);
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
    if (argc == 3 && strcmp(argv[1], "rank") == 0)
        return stand_in(argv[2]);
    return cw_main(&contender);
}
