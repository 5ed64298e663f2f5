/* Shared by the programs of this folder: plain AF_TIPC, as for any kernel. They print the results of calls; a test compares them. */
#ifndef CHECK_H
#define CHECK_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/tipc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Prints "what: value", or the name of the errno after a failure. */
static inline long told(const char *what, long value)
{
	if (value < 0)
		printf("%s: %s\n", what, strerrorname_np(errno));
	else
		printf("%s: %ld\n", what, value);
	fflush(stdout);
	return value;
}

#define CALL(call) told(#call, (call))

static inline void must(const char *what, long value)
{
	if (value < 0) {
		fprintf(stderr, "%s: %s\n", what, strerror(errno));
		exit(1);
	}
}

#define MUST(call) must(#call, (call))

static inline struct sockaddr_tipc service(__u32 type, __u32 instance)
{
	struct sockaddr_tipc a = {.family = AF_TIPC, .addrtype = TIPC_SERVICE_ADDR, .scope = TIPC_CLUSTER_SCOPE};
	a.addr.name.name.type = type;
	a.addr.name.name.instance = instance;
	return a;
}

static inline struct sockaddr_tipc range(__u32 type, __u32 lower, __u32 upper)
{
	struct sockaddr_tipc a = {.family = AF_TIPC, .addrtype = TIPC_SERVICE_RANGE, .scope = TIPC_CLUSTER_SCOPE};
	a.addr.nameseq.type = type;
	a.addr.nameseq.lower = lower;
	a.addr.nameseq.upper = upper;
	return a;
}

#define ADDRESS(a) (struct sockaddr *)&(a), sizeof(a)

static inline int opened(int kind)
{
	int fd = socket(AF_TIPC, kind, 0);
	must("socket", fd);
	return fd;
}

static inline int bound(int kind, __u32 type)
{
	struct sockaddr_tipc a = range(type, 0, 9);
	int fd = opened(kind);
	if (kind == SOCK_STREAM || kind == SOCK_SEQPACKET)
		MUST(listen(fd, 4));
	MUST(bind(fd, ADDRESS(a)));
	return fd;
}

static inline int connected(int kind, __u32 type)
{
	struct sockaddr_tipc a = service(type, 1);
	int fd = opened(kind);
	MUST(connect(fd, ADDRESS(a)));
	return fd;
}

/* As connected, but waits: the name may not have reached this node yet, and the backlog of a listener is limited. */
static inline int connected_eventually(int kind, __u32 type)
{
	struct sockaddr_tipc a = service(type, 1);
	int fd = opened(kind);
	while (connect(fd, ADDRESS(a)) < 0) {
		if (errno != EHOSTUNREACH && errno != ECONNREFUSED)
			must("connect", -1);
		close(fd);
		usleep(10000);
		fd = opened(kind);
	}
	return fd;
}

/* Waits without a time limit until a descriptor has these events: with a timeout of poll, a late event would look like a missing one. The caller has a watchdog. */
static inline void await(int fd, short events)
{
	struct pollfd p = {.fd = fd, .events = events};
	must("poll", poll(&p, 1, -1) == 1 ? 0 : -1);
}

/* Waits until this many messages can be received. */
static inline void await_messages(int fd, int count)
{
	int there = 0;
	socklen_t len = sizeof(there);
	for (int n = 0; n < 120000 && there < count; n++) {
		usleep(1000);
		must("getsockopt", getsockopt(fd, SOL_TIPC, TIPC_SOCK_RECVQ_DEPTH, &there, &len));
	}
	must("the messages", there == count ? 0 : -1);
}

#endif
