/* Connections that end in good order: the client sends more than a window, shuts down and closes at once; the server reads when that has been done. Several
 * processes on either side have connections at the same time.
 *
 *   ends server KIND SERVICE COUNT PROCESSES          accepts COUNT connections, and says how they ended
 *   ends client KIND SERVICE COUNT PROCESSES          makes them
 *   ends both KIND SERVICE COUNT PROCESSES            a client and its server */
#include "check.h"
#include <sys/mman.h>

/* More than a window. */
enum { BYTES = 1000, MESSAGES = 400, MOST = 64, LONGEST = 66000, LATE_MICROSECONDS = 5000 };
static char bytes[LONGEST];
static int processes;
static struct counts {
	long begun, whole;
} *counts;

static int kind_of(const char *name)
{
	return strcmp(name, "stream") == 0 ? SOCK_STREAM : SOCK_SEQPACKET;
}

static void serve(int listener)
{
	int fd = accept(listener, NULL, NULL);
	must("accept", fd);
	/* Time for an end to come too early. */
	usleep(LATE_MICROSECONDS);
	long got = 0, len;
	while ((len = recv(fd, bytes, sizeof(bytes), 0)) > 0)
		got += len;
	if (len < 0 || got != BYTES * MESSAGES) {
		fprintf(stderr, "after %ld of %d bytes: %s\n", got, BYTES * MESSAGES, len < 0 ? strerrorname_np(errno) : "the end");
		exit(1);
	}
	close(fd);
}

static void ask(int kind, int type)
{
	int fd = connected_eventually(kind, type);
	for (int n = 0; n < MESSAGES; n++) {
		long len = send(fd, bytes, BYTES, 0);
		must("send", len);
		if (len != BYTES) {
			fprintf(stderr, "sent %ld bytes\n", len);
			exit(1);
		}
	}
	MUST(shutdown(fd, SHUT_RDWR));
	close(fd);
}

/* Runs several processes until this number of connections was begun; returns whether all ended in order. */
static int by_processes(int listener, int kind, int type, long count)
{
	int good = 1, status;
	pid_t children[MOST];
	counts = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (counts == MAP_FAILED)
		must("mmap", -1);
	for (int n = 0; n < processes; n++) {
		children[n] = fork();
		must("fork", children[n]);
		if (children[n] != 0)
			continue;
		while (__atomic_fetch_add(&counts->begun, 1, __ATOMIC_SEQ_CST) < count) {
			if (listener >= 0)
				serve(listener);
			else
				ask(kind, type);
			__atomic_fetch_add(&counts->whole, 1, __ATOMIC_SEQ_CST);
		}
		exit(0);
	}
	for (int n = 0; n < processes; n++) {
		MUST(waitpid(children[n], &status, 0));
		good &= status == 0;
	}
	if (listener >= 0)
		printf("%ld of %ld connections ended in good order after %d bytes\n", counts->whole, count, BYTES * MESSAGES);
	return good && counts->whole == count;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 6 || atoi(argv[5]) > MOST)
		return 2;
	processes = atoi(argv[5]);
	int kind = kind_of(argv[2]), type = atoi(argv[3]), status = 0;
	long count = atol(argv[4]);
	if (strcmp(argv[1], "client") == 0)
		return !by_processes(-1, kind, type, count);
	int listener = bound(kind, type);
	if (strcmp(argv[1], "server") == 0)
		return !by_processes(listener, kind, type, count);
	pid_t client = fork();
	must("fork", client);
	if (client == 0) {
		close(listener);
		return !by_processes(-1, kind, type, count);
	}
	int good = by_processes(listener, kind, type, count);
	MUST(waitpid(client, &status, 0));
	return !good || status != 0;
}
