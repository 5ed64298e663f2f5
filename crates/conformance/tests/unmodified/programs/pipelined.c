/* An echo without lock-step: the client receives what poll() reports before each blocking send, the server sends back everything it receives. Each end waits only
 * for its socket, so the capacity of the sockets decides whether both ends end up waiting.
 *
 *   pipelined server KIND SERVICE                        serves one client
 *   pipelined client KIND SERVICE SIZE COUNT [PATIENCE]  sends; reports if nothing moves for PATIENCE seconds
 *   pipelined both KIND SERVICE SIZE COUNT [PATIENCE]    a client and its server */
#include "check.h"

enum { LONGEST = 66000, MESSAGES = 251 };
static char in[LONGEST], pattern[LONGEST + MESSAGES];
static long size, sent, back, seen = -1, patience = 300;

static void look(int number)
{
	long moved = sent + back;
	(void)number;
	if (moved != seen) {
		seen = moved;
		alarm(patience);
		return;
	}
	char text[100];
	int len = snprintf(text, sizeof(text), "stalled: %ld bytes sent, %ld back\n", sent, back);
	_exit(write(1, text, len) < 0 ? 2 : 1);
}

static int kind_of(const char *name)
{
	return strcmp(name, "stream") == 0 ? SOCK_STREAM : SOCK_SEQPACKET;
}

static void send_all(int fd, const char *bytes, long len)
{
	while (len > 0) {
		long n = send(fd, bytes, len, 0);
		must("send", n);
		bytes += n;
		len -= n;
	}
}

static void serve(int listener)
{
	long len;
	int fd = accept(listener, NULL, NULL);
	must("accept", fd);
	while ((len = recv(fd, in, sizeof(in), 0)) > 0)
		send_all(fd, in, len);
	must("recv", len);
	close(fd);
}

/* The content of a message; cheap to generate, so that the client is no slower than the sockets. */
static const char *message(long n)
{
	return pattern + n % MESSAGES;
}

static void receive(int fd, int stream)
{
	long len = recv(fd, in, sizeof(in), 0);
	must("recv", len);
	if (len == 0 || (!stream && len != size)) {
		fprintf(stderr, "received %ld bytes\n", len);
		exit(1);
	}
	for (long at = 0, part; at < len; at += part, back += part) {
		long begun = back % size;
		part = len - at < size - begun ? len - at : size - begun;
		if (memcmp(in + at, message(back / size) + begun, part) != 0) {
			fprintf(stderr, "message %ld came back as another\n", back / size);
			exit(1);
		}
	}
}

static void ask(int kind, int type, long count)
{
	int fd = connected_eventually(kind, type);
	for (long n = 0; n < LONGEST + MESSAGES; n++)
		pattern[n] = (char)(n * n >> 7);
	signal(SIGALRM, look);
	alarm(patience);
	for (long n = 0; n < count; n++) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		while (poll(&p, 1, 0) > 0)
			receive(fd, kind == SOCK_STREAM);
		send_all(fd, message(n), size);
		sent += size;
	}
	while (back < sent)
		receive(fd, kind == SOCK_STREAM);
	alarm(0);
	MUST(shutdown(fd, SHUT_RDWR));
	printf("%ld messages of %ld bytes came back\n", count, size);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 4)
		return 2;
	int kind = kind_of(argv[2]), type = atoi(argv[3]), client = strcmp(argv[1], "server") != 0, status = 0;
	if (client) {
		if (argc < 6)
			return 2;
		size = atol(argv[4]);
		if (argc > 6)
			patience = atol(argv[6]);
	}
	if (strcmp(argv[1], "client") == 0) {
		ask(kind, type, atol(argv[5]));
		return 0;
	}
	int listener = bound(kind, type);
	pid_t server = client ? fork() : 0;
	if (server == 0) {
		serve(listener);
		return 0;
	}
	MUST(close(listener));
	ask(kind, type, atol(argv[5]));
	MUST(waitpid(server, &status, 0));
	return WEXITSTATUS(status);
}
