/* A server of many processes and a client of many connections, which runs for as many rounds as requested, and continues when the node below is replaced.
 *
 *   longlived CONNECTIONS CHILDREN
 *
 * A line on standard input starts a round: each connection echoes messages of several sizes; some of them end (in every possible way) and are opened
 * again. The answer is a line of counts, and of the errors that occurred. The server's processes share a listener until it fails; then each makes its own. */
#include "check.h"
#include <sys/prctl.h>
#include <sys/resource.h>

enum { SERVICE = 18970, ECHOES = 4, LONGEST = 66000, KINDS = 2 };
static const int kinds[KINDS] = {SOCK_SEQPACKET, SOCK_STREAM};
static char in[LONGEST], out[LONGEST];


static int listener_of(int n)
{
	struct sockaddr_tipc a = range(SERVICE + n, 1, 1);
	int fd = socket(AF_TIPC, kinds[n] | SOCK_NONBLOCK, 0);
	if (fd >= 0 && listen(fd, 4096) == 0 && bind(fd, ADDRESS(a)) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

/* Sends all of it, or returns that the connection has failed. */
static int sent_all(int fd, const char *bytes, long len)
{
	while (len > 0) {
		long n = send(fd, bytes, len, 0);
		if (n <= 0)
			return 0;
		bytes += n;
		len -= n;
	}
	return 1;
}

/* Serves until the client's process has ended. */
static void serve(int *listeners)
{
	struct pollfd *fds = calloc(5000, sizeof(*fds));
	int count = KINDS;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		for (int n = 0; n < KINDS; n++) {
			if (listeners[n] < 0)
				listeners[n] = listener_of(n);
			fds[n] = (struct pollfd){.fd = listeners[n], .events = POLLIN};
		}
		int lost = listeners[0] < 0 || listeners[1] < 0;
		int ready = poll(fds, count, lost ? 50 : -1);
		must("poll", ready);
		for (int n = 0; n < KINDS; n++) {
			if (listeners[n] < 0 || fds[n].revents == 0)
				continue;
			int fd = accept(listeners[n], NULL, NULL);
			if (fd >= 0 && count < 5000) {
				fds[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
			} else if (fd < 0 && errno != EAGAIN && errno != ECONNABORTED && errno != EINTR) {
				/* The node has ended; its successor gets a listener of this process. */
				close(listeners[n]);
				listeners[n] = -1;
			}
		}
		for (int n = KINDS; n < count; n++) {
			if (fds[n].revents == 0)
				continue;
			long len = recv(fds[n].fd, in, sizeof(in), MSG_DONTWAIT);
			if ((len < 0 && errno == EAGAIN) || (len > 0 && sent_all(fds[n].fd, in, len)))
				continue;
			close(fds[n].fd);
			fds[n--] = fds[--count];
		}
	}
}

/* The client's results. */
static long echoes, ends, failures;
static int errors[200];

static void note(int error)
{
	if (error == 0)
		return;
	failures++;
	errors[error < 200 ? error : 199]++;
}

static int failed(int fd)
{
	note(errno);
	if (fd >= 0)
		close(fd);
	return -1;
}

/* Opens a connection, however long that takes: the service may be restarting. */
static int reached(int n)
{
	struct sockaddr_tipc a = service(SERVICE + n, 1);
	for (;;) {
		int fd = socket(AF_TIPC, kinds[n], 0);
		if (fd >= 0 && connect(fd, ADDRESS(a)) == 0)
			return fd;
		failed(fd);
		usleep(20000);
	}
}

/* Reads the echo of one message without waiting for anything else. */
static int echoed(int fd, long len, char fill)
{
	memset(out, fill, len);
	if (!sent_all(fd, out, len))
		return 0;
	for (long at = 0; at < len;) {
		long n = recv(fd, in, len - at, 0);
		if (n <= 0) {
			if (n == 0)
				errno = ECONNRESET;
			return 0;
		}
		for (long k = 0; k < n; k++) {
			if (in[k] != fill) {
				fprintf(stderr, "byte %ld of %ld came back as %d, not %d\n", at + k, len, in[k], fill);
				exit(1);
			}
		}
		at += n;
	}
	echoes++;
	return 1;
}

static void end(int fd, long way)
{
	ends++;
	if (way % 3 == 0)
		MUST(shutdown(fd, SHUT_RDWR));
	if (way % 3 == 1)
		/* The echo of this message is not waited for. */
		(void)!write(fd, out, 100);
	close(fd);
}

int main(int argc, char **argv)
{
	static const long sizes[ECHOES] = {1, 1000, 8000, LONGEST};
	char line[100];
	int connections = argc > 1 ? atoi(argv[1]) : 0, children = argc > 2 ? atoi(argv[2]) : 0, listeners[KINDS];
	struct rlimit limit;
	MUST(getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = limit.rlim_max;
	MUST(setrlimit(RLIMIT_NOFILE, &limit));
	for (int n = 0; n < KINDS; n++) {
		listeners[n] = listener_of(n);
		must("listener", listeners[n]);
	}
	for (int n = 0; n < children; n++) {
		pid_t child = fork();
		must("fork", child);
		if (child == 0)
			serve(listeners);
	}
	for (int n = 0; n < KINDS; n++)
		close(listeners[n]);
	int *fds = calloc(connections, sizeof(*fds));
	for (int n = 0; n < connections; n++)
		fds[n] = reached(n % KINDS);
	printf("connected %d\n", connections);
	fflush(stdout);
	for (long round = 0; fgets(line, sizeof(line), stdin); round++) {
		for (int n = 0; n < connections; n++) {
			/* The longest are less frequent. */
			long size = sizes[(n + round) % (n % 16 ? ECHOES - 1 : ECHOES)];
			if (!echoed(fds[n], size, (char)(n + round))) {
				failed(fds[n]);
				fds[n] = reached(n % KINDS);
			} else if ((n + round) % 10 == 0) {
				end(fds[n], n / 10 + round);
				fds[n] = reached(n % KINDS);
			}
		}
		printf("round %ld echoes %ld ends %ld failures %ld", round, echoes, ends, failures);
		for (int n = 0; n < 200; n++) {
			if (errors[n])
				printf(" %s", strerrorname_np(n));
		}
		printf("\n");
		fflush(stdout);
		echoes = ends = failures = 0;
		memset(errors, 0, sizeof(errors));
	}
	return 0;
}
