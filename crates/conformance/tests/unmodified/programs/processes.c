/* Descriptors in other processes and threads: fork, exec, vfork, copies, passed descriptors, signals, cancelled threads. */
#include "check.h"
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static char buf[70000];
static const char *self;

static int ended(pid_t child)
{
	int status;
	MUST(waitpid(child, &status, 0));
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* A server that forks for each connection. */
static void forks(void)
{
	int listener = bound(SOCK_STREAM, 18800);
	pid_t server = fork();
	if (server == 0) {
		for (int n = 0; n < 3; n++) {
			int fd = accept(listener, NULL, NULL);
			MUST(fd);
			if (fork() == 0) {
				close(listener);
				long len = read(fd, buf, sizeof(buf));
				MUST(write(fd, buf, len));
				_exit(close(fd) ? 1 : 0);
			}
			MUST(close(fd));
		}
		int all = 0, status;
		while (wait(&status) > 0)
			all += status == 0;
		_exit(all);
	}
	MUST(close(listener));
	for (int n = 0; n < 3; n++) {
		int fd = connected(SOCK_STREAM, 18800);
		CALL(write(fd, "echo", 4));
		CALL(read(fd, buf, sizeof(buf)));
		MUST(close(fd));
	}
	printf("children that served: %d\n", ended(server));

	/* Both use one shared socket, and each uses its own. */
	struct sockaddr_tipc to = service(18801, 1);
	int shared = opened(SOCK_RDM), t = bound(SOCK_RDM, 18801);
	MUST(connect(shared, ADDRESS(to)));
	pid_t child = fork();
	if (child == 0) {
		MUST(send(shared, "child", 5, 0));
		int own = connected(SOCK_RDM, 18801);
		MUST(send(own, "own", 3, 0));
		_exit(0);
	}
	printf("child: %d\n", ended(child));
	CALL(recv(t, buf, 100, 0));
	CALL(recv(t, buf, 100, 0));
	CALL(send(shared, "parent", 6, 0));
	CALL(recv(t, buf, 100, 0));
	/* A destination that the child changes also changes for the parent: there is only one socket. */
	child = fork();
	if (child == 0) {
		to = service(18809, 1);
		_exit(connect(shared, ADDRESS(to)) != 0);
	}
	printf("child: %d\n", ended(child));
	CALL(send(shared, "x", 1, 0));
	MUST(close(shared));
	MUST(close(t));
}

static void copies(void)
{
	struct sockaddr_tipc to = service(18810, 1);
	int s = connected(SOCK_RDM, 18810), t = bound(SOCK_RDM, 18810);
	int made[] = {dup(t), dup2(t, 77), dup3(t, 78, O_CLOEXEC), fcntl(t, F_DUPFD, 80), fcntl(t, F_DUPFD_CLOEXEC, 90)};
	MUST(close(t));
	for (int n = 0; n < 5; n++) {
		MUST(made[n]);
		MUST(sendto(s, "to a copy", 9, 0, ADDRESS(to)));
		CALL(recv(made[n], buf, 100, 0));
		if (n < 4)
			MUST(close(made[n]));
	}
	/* The number of a former TIPC socket is reused for another file. */
	int file = open("/dev/null", O_RDWR);
	MUST(dup2(file, made[4]));
	CALL(write(made[4], "gone", 4));
	CALL(recv(made[4], buf, 1, 0));
	/* A node in another process notices the end a moment later. */
	for (int n = 0; n < 10000 && sendto(s, "x", 1, 0, ADDRESS(to)) == 1; n++)
		usleep(2000);
	CALL(sendto(s, "x", 1, 0, ADDRESS(to)));
	/* Programs that become servers close all descriptors. */
	for (int fd = 3; fd < 2000; fd++)
		close(fd);
	t = bound(SOCK_RDM, 18810);
	s = connected(SOCK_RDM, 18810);
	printf("after closing all: %d %d\n", t, s);
	CALL(send(s, "again", 5, 0));
	CALL(recv(t, buf, 100, 0));
	MUST(syscall(SYS_close_range, 3, ~0U, 0));
	t = bound(SOCK_RDM, 18811);
	MUST(close(t));
	MUST(close_range(3, ~0U, 0));
	t = bound(SOCK_RDM, 18810);
	printf("and again: %d\n", t);
	MUST(close(t));
	signal(SIGPIPE, SIG_DFL);
	int pair[2];
	MUST(socketpair(AF_TIPC, SOCK_STREAM, 0, pair));
	MUST(close(pair[0]));
	await(pair[1], POLLHUP);
	CALL(write(pair[1], "x", 1));
	MUST(close(pair[1]));
}

/* What the program does when it is executed again with a socket. */
static int inherits(int fd)
{
	int kind;
	socklen_t len = sizeof(kind);
	MUST(getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &len));
	printf("inherited a socket of kind %d\n", kind);
	CALL(recv(fd, buf, 100, 0));
	CALL(send(fd, "thanks", 6, 0));
	return 0;
}

static void execs(void)
{
	int kinds[] = {SOCK_RDM, SOCK_SEQPACKET, SOCK_STREAM};
	static int n; /* not in a register that a child of vfork shares */
	for (n = 0; n < 6; n++) {
		int pair[2];
		MUST(socketpair(AF_TIPC, kinds[n % 3], 0, pair));
		MUST(send(pair[0], "for the next", 12, 0));
		pid_t child = n < 3 ? fork() : vfork();
		if (child == 0) {
			dup2(pair[1], 0);
			close(pair[0]);
			close(pair[1]);
			execl(self, self, "inherits", NULL);
			_exit(9);
		}
		printf("child: %d\n", ended(child));
		/* The child's changes to its descriptors do not affect these. */
		CALL(recv(pair[0], buf, 100, 0));
		CALL(send(pair[0], "x", 1, 0));
		MUST(close(pair[0]));
		MUST(close(pair[1]));
	}
}

static void sent(void)
{
	int way[2], pair[2];
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, way));
	pid_t child = fork();
	union { char room[CMSG_SPACE(sizeof(int))]; struct cmsghdr header; } control = {0};
	struct iovec part = {buf, 1};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof(control.room)};
	if (child == 0) {
		MUST(recvmsg(way[1], &m, 0));
		int fd = *(int *)CMSG_DATA(CMSG_FIRSTHDR(&m));
		MUST(send(fd, "from afar", 9, 0));
		_exit(0);
	}
	MUST(socketpair(AF_TIPC, SOCK_SEQPACKET, 0, pair));
	control.header.cmsg_len = CMSG_LEN(sizeof(int));
	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	memcpy(CMSG_DATA(&control.header), &pair[1], sizeof(int));
	MUST(sendmsg(way[0], &m, 0));
	MUST(close(pair[1]));
	printf("child: %d\n", ended(child));
	CALL(recv(pair[0], buf, 100, 0));
	MUST(close(pair[0]));
}

static volatile int alarmed, within = -1;

/* The next alarm follows a while after this one has been handled, however slow the machine, so that the interrupted code makes progress. */
static void on_alarm(int signal)
{
	struct itimerval again = {{0, 0}, {0, 500}};
	(void)signal;
	alarmed++;
	if (within >= 0) {
		send(within, "handler", 7, MSG_DONTWAIT);
		setitimer(ITIMER_REAL, &again, NULL);
	}
}

static void signals(void)
{
	struct sigaction action = {.sa_handler = on_alarm};
	/* Repeatedly, because the first alarm may come before the call. */
	struct itimerval soon = {{0, 50000}, {0, 50000}}, once = {{0, 0}, {0, 500}}, never = {{0, 0}, {0, 0}};
	struct timeval limit = {0, 50000};
	int t = bound(SOCK_RDM, 18820), listener = bound(SOCK_STREAM, 18821);
	MUST(sigaction(SIGALRM, &action, NULL));
	setitimer(ITIMER_REAL, &soon, NULL);
	CALL(recv(t, buf, 100, 0));
	setitimer(ITIMER_REAL, &soon, NULL);
	CALL(accept(listener, NULL, NULL));
	setitimer(ITIMER_REAL, &never, NULL);
	int s = opened(SOCK_STREAM);
	struct sockaddr_tipc to = service(18821, 1);
	setitimer(ITIMER_REAL, &soon, NULL);
	CALL(connect(s, ADDRESS(to)));
	setitimer(ITIMER_REAL, &never, NULL);
	MUST(close(s));
	printf("an alarm each: %d\n", alarmed >= 3);
	MUST(setsockopt(t, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)));
	CALL(recv(t, buf, 100, 0));

	/* A handler that sends, whatever it interrupts. */
	int other = bound(SOCK_RDM, 18823);
	within = connected(SOCK_RDM, 18823);
	action.sa_flags = SA_RESTART;
	MUST(sigaction(SIGALRM, &action, NULL));
	alarmed = 0;
	setitimer(ITIMER_REAL, &once, NULL);
	for (int n = 0; n < 300 || alarmed < 20; n++) {
		int fd = opened(SOCK_RDM);
		struct sockaddr_tipc a = range(18824, n, n);
		MUST(bind(fd, ADDRESS(a)));
		a = service(18823, 2);
		MUST(sendto(fd, "main", 4, 0, ADDRESS(a)));
		MUST(close(fd));
		while (recv(other, buf, 100, MSG_DONTWAIT) > 0)
			;
		if (n > 300)
			usleep(1000);
	}
	within = -1;
	setitimer(ITIMER_REAL, &never, NULL);
	printf("a handler that sends: done\n");
	MUST(close(t));
	MUST(close(other));
	MUST(close(listener));
}

static volatile pid_t receiver;

static void *receives(void *fd)
{
	static char here[100];
	receiver = gettid();
	return (void *)recv(*(int *)fd, here, sizeof(here), 0);
}

/* Waits until the receiving thread sleeps in its call: it does not wait for a lock on the way there for this many checks. */
static void await_receiver(void)
{
	char path[64], line[256];
	int asleep = 0;
	for (int n = 0; n < 120000 && asleep < 20; n++) {
		usleep(1000);
		if (receiver == 0)
			continue;
		char state = 'R';
		snprintf(path, sizeof(path), "/proc/self/task/%d/stat", receiver);
		FILE *stat = fopen(path, "r");
		if (stat && fgets(line, sizeof(line), stat))
			state = strrchr(line, ')')[2];
		if (stat)
			fclose(stat);
		asleep = state == 'S' ? asleep + 1 : 0;
	}
	must("the receiver sleeps", asleep == 20 ? 0 : -1);
	receiver = 0;
}

/* The events that poll reports without being asked for any. */
static void *hears(void *fd)
{
	struct pollfd p = {.fd = *(int *)fd};
	receiver = gettid();
	return (void *)(long)(poll(&p, 1, 120000) == 1 ? p.revents : -1);
}

static void *sends(void *number)
{
	int s = connected(SOCK_RDM, 18832);
	for (int n = 0; n < 200; n++)
		MUST(send(s, number, sizeof(number), 0));
	MUST(close(s));
	return NULL;
}

static void threads(void)
{
	struct sockaddr_tipc own;
	socklen_t len = sizeof(own);
	pthread_t thread, senders[4];
	void *result;
	int s = opened(SOCK_RDM), t = opened(SOCK_RDM);
	MUST(getsockname(t, (struct sockaddr *)&own, &len));
	pthread_create(&thread, NULL, receives, &t);
	await_receiver();
	/* The thread keeps the socket until its call returns. */
	MUST(close(t));
	CALL(sendto(s, "late", 4, 0, ADDRESS(own)));
	pthread_join(thread, &result);
	printf("the thread got %ld\n", (long)result);

	t = bound(SOCK_RDM, 18831);
	pthread_create(&thread, NULL, receives, &t);
	await_receiver();
	pthread_cancel(thread);
	pthread_join(thread, &result);
	printf("cancelled: %d\n", result == PTHREAD_CANCELED);
	int listener = bound(SOCK_STREAM, 18833), one = opened(SOCK_STREAM);
	struct sockaddr_tipc to = service(18833, 1);
	MUST(fcntl(one, F_SETFL, O_NONBLOCK));
	CALL(connect(one, ADDRESS(to)));
	int other = accept(listener, NULL, NULL);
	MUST(other);
	await(one, POLLOUT);
	pthread_create(&thread, NULL, hears, &one);
	await_receiver();
	MUST(close(other));
	pthread_join(thread, &result);
	printf("the end is heard: %lx\n", (long)result);
	MUST(close(one));
	MUST(close(listener));
	int ends[2];
	MUST(pipe(ends));
	pthread_create(&thread, NULL, (void *(*)(void *))(void *)receives, &ends[0]);
	pthread_join(thread, &result);
	printf("recv of a pipe: %ld\n", (long)result);

	int all = bound(SOCK_RDM, 18832), got = 0;
	for (int n = 0; n < 4; n++)
		pthread_create(&senders[n], NULL, sends, &all);
	while (got < 800) {
		MUST(recv(all, buf, 100, 0));
		got++;
	}
	for (int n = 0; n < 4; n++)
		pthread_join(senders[n], NULL);
	printf("from four threads: %d\n", got);
}

int main(int count, char **words)
{
	struct rlimit limit = {4096, 4096};
	setrlimit(RLIMIT_NOFILE, &limit);
	self = words[0];
	if (count > 1)
		return inherits(0);
	forks();
	copies();
	execs();
	sent();
	signals();
	threads();
	return 0;
}
