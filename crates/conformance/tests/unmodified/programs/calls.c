/* Every call that concerns sockets, in one process. */
#include "check.h"
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <linux/sockios.h>

static char buf[70000];

/* Invalid pointers. The destination address of a send is left out, because the library does not check it: see docs/TIPC-CONFORMANCE.md. */
static void nowhere(void)
{
	void *bad = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = socket(AF_TIPC, SOCK_RDM, 0), value = TIPC_HIGH_IMPORTANCE;
	struct sockaddr_tipc to = {.family = AF_TIPC, .addrtype = TIPC_SERVICE_RANGE, .scope = TIPC_NODE_SCOPE};
	socklen_t len = sizeof(to);

	MUST(bad != MAP_FAILED ? 0 : -1);
	CALL(bind(fd, bad, sizeof(to)));
	CALL(connect(fd, bad, sizeof(to)));
	CALL(getsockname(fd, bad, &len));
	CALL(getsockname(fd, (void *)&to, bad));
	CALL(setsockopt(fd, SOL_TIPC, TIPC_IMPORTANCE, bad, sizeof(value)));
	len = sizeof(value);
	CALL(getsockopt(fd, SOL_TIPC, TIPC_IMPORTANCE, bad, &len));
	CALL(getsockopt(fd, SOL_TIPC, TIPC_IMPORTANCE, &value, bad));
	CALL(socketpair(AF_TIPC, SOCK_SEQPACKET, 0, bad));
	to.addr.nameseq.type = 1500;
	MUST(bind(fd, (void *)&to, sizeof(to)));
	to.addrtype = TIPC_SERVICE_ADDR;
	to.addr.name.name.instance = 0;
	to.addr.name.domain = 0;
	CALL(sendto(fd, bad, 5, 0, (void *)&to, sizeof(to)));
	MUST(sendto(fd, "hello", 5, 0, (void *)&to, sizeof(to)));
	CALL(recv(fd, bad, 5, 0));
	close(fd);
	munmap(bad, 4096);
}

static void kinds(void)
{
	int kinds[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_RDM, SOCK_SEQPACKET};
	int value;
	socklen_t len;

	CALL(socket(AF_TIPC, SOCK_RAW, 0));
	CALL(socket(AF_TIPC, SOCK_RDM, 1));
	CALL(socket(AF_TIPC, 77, 0));
	for (int n = 0; n < 4; n++) {
		int fd = socket(AF_TIPC, kinds[n] | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		printf("kind %d: nonblocking %d, close on exec %d\n", kinds[n], !!(fcntl(fd, F_GETFL) & O_NONBLOCK),
		       fcntl(fd, F_GETFD));
		int options[] = {SO_TYPE, SO_DOMAIN, SO_PROTOCOL, SO_ACCEPTCONN, SO_ERROR, SO_SNDBUF, SO_RCVBUF};
		for (unsigned o = 0; o < sizeof(options) / sizeof(*options); o++) {
			len = sizeof(value);
			MUST(getsockopt(fd, SOL_SOCKET, options[o], &value, &len));
			printf("option %d: %d, %u bytes\n", options[o], value, len);
		}
		struct ucred nobody;
		len = sizeof(nobody);
		MUST(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &nobody, &len));
		printf("peer's process %d\n", nobody.pid);
		len = 2;
		CALL(getsockopt(fd, SOL_TIPC, TIPC_IMPORTANCE, &value, &len));
		value = TIPC_HIGH_IMPORTANCE;
		CALL(setsockopt(fd, SOL_TIPC, TIPC_IMPORTANCE, &value, sizeof(value)));
		CALL(setsockopt(fd, SOL_TIPC, TIPC_IMPORTANCE, &value, 3));
		len = sizeof(value);
		CALL(getsockopt(fd, SOL_TIPC, TIPC_IMPORTANCE, &value, &len));
		printf("importance %d, %u bytes\n", value, len);
		CALL(setsockopt(fd, 17, 1, &value, sizeof(value)));
		CALL(setsockopt(fd, 6, 1, &value, sizeof(value)));
		len = sizeof(value);
		CALL(getsockopt(fd, 6, 1, &value, &len));
		CALL(ioctl(fd, FIONREAD, &value));
		CALL(ioctl(fd, SIOCOUTQ, &value));
		MUST(close(fd));
		CALL(close(fd));
		CALL(send(fd, "x", 1, 0));
		errno = EDOM;
		fd = socket(AF_TIPC, kinds[n], 0);
		printf("errno is left alone: %d\n", errno == EDOM);
		printf("kind %d: nonblocking %d, close on exec %d\n", kinds[n], !!(fcntl(fd, F_GETFL) & O_NONBLOCK),
		       fcntl(fd, F_GETFD));
		value = 50000;
		CALL(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &value, sizeof(value)));
		len = sizeof(value);
		MUST(getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &value, &len));
		printf("room for %d bytes\n", value);
		MUST(close(fd));
	}
}

static void nodes(void)
{
	int fd = opened(SOCK_RDM);
	struct sockaddr_tipc own;
	socklen_t len = sizeof(own);
	MUST(getsockname(fd, (struct sockaddr *)&own, &len));
	struct tipc_sioc_nodeid_req id = {.peer = own.addr.id.node};
	struct tipc_sioc_ln_req link = {.peer = 0x77777, .bearer_id = 1};
	CALL(ioctl(fd, SIOCGETNODEID, &id));
	CALL(ioctl(fd, SIOCGETLINKNAME, &link));
	MUST(close(fd));
}

static void names(void)
{
	struct sockaddr_tipc a = range(18700, 1, 5);
	int fd = opened(SOCK_RDM);
	CALL(bind(fd, (struct sockaddr *)&a, 15));
	CALL(bind(fd, ADDRESS(a)));
	a.scope = -a.scope;
	CALL(bind(fd, ADDRESS(a)));
	CALL(bind(fd, ADDRESS(a)));
	CALL(bind(fd, (struct sockaddr *)&a, 0));
	a.family = AF_INET;
	CALL(bind(fd, ADDRESS(a)));
	struct sockaddr_tipc own[2];
	memset(own, 0xaa, sizeof(own));
	socklen_t len = sizeof(own);
	CALL(getsockname(fd, (struct sockaddr *)own, &len));
	printf("name: %u bytes, family %d, type %d, scope %d, has a port %d, then %x\n", len, own[0].family, own[0].addrtype,
	       own[0].scope, own[0].addr.id.ref != 0, own[1].family);
	len = 4;
	CALL(getsockname(fd, (struct sockaddr *)own, &len));
	printf("name in 4 bytes: %u\n", len);
	len = sizeof(own);
	CALL(getpeername(fd, (struct sockaddr *)own, &len));
	MUST(close(fd));
}

/* Prints the data that came with a message. */
static void tell(struct msghdr *m, long got)
{
	told("recvmsg", got);
	printf("flags %x, %u bytes of name\n", m->msg_flags, m->msg_namelen);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		__u32 words[3] = {0};
		size_t len = c->cmsg_len - CMSG_LEN(0);
		memcpy(words, CMSG_DATA(c), len < sizeof(words) ? len : sizeof(words));
		printf("control data %d of level %d: %zu bytes", c->cmsg_type, c->cmsg_level, len);
		if (c->cmsg_type == TIPC_RETDATA)
			printf(", %.5s\n", (char *)CMSG_DATA(c));
		else
			printf(", %u %u %u\n", words[0], words[1], words[2]);
	}
}

static long received(int fd, int flags, size_t control_len)
{
	static char control[4096] __attribute__((aligned(8)));
	struct sockaddr_tipc from[2];
	struct iovec parts[2] = {{buf, 3}, {buf + 3, sizeof(buf) - 3}};
	struct msghdr m = {.msg_name = from, .msg_namelen = sizeof(from), .msg_iov = parts, .msg_iovlen = 2};
	if (control_len) {
		m.msg_control = control;
		m.msg_controllen = control_len;
	}
	long got = recvmsg(fd, &m, flags);
	if (got < 0)
		return told("recvmsg", got);
	tell(&m, got);
	return got;
}

static void datagrams(void)
{
	struct sockaddr_tipc to = service(18710, 3), all = range(18710, 0, 9), nobody = service(18719, 3);
	int s = opened(SOCK_RDM), t = bound(SOCK_RDM, 18710);
	struct iovec parts[3] = {{"ab", 2}, {"", 0}, {"cdefg", 5}};
	struct msghdr m = {.msg_name = &to, .msg_namelen = sizeof(to), .msg_iov = parts, .msg_iovlen = 3};

	CALL(write(s, "x", 1));
	CALL(sendto(s, "x", 1, 0, (struct sockaddr *)&to, 15));
	CALL(sendto(s, "x", 1, 0, ADDRESS(nobody)));
	CALL(sendto(s, buf, 66001, 0, ADDRESS(to)));
	CALL(recv(t, buf, 100, MSG_DONTWAIT));
	CALL(recv(t, buf, 0, 0));
	CALL(read(t, buf, 0));
	CALL(sendmsg(s, &m, 0));
	await(t, POLLIN);
	CALL(recv(t, buf, 4, MSG_PEEK));
	received(t, MSG_PEEK, 0);
	received(t, 0, 4096);
	printf("%.7s\n", buf);
	CALL(sendto(s, "many", 4, 0, ADDRESS(all)));
	await(t, POLLIN);
	received(t, 0, 4096);
	CALL(sendto(s, "short", 5, 0, ADDRESS(to)));
	await(t, POLLIN);
	received(t, 0, 20);
	CALL(connect(s, ADDRESS(to)));
	CALL(write(s, "one", 3));
	CALL(writev(s, parts, 3));
	CALL(send(s, "three", 5, MSG_MORE | MSG_NOSIGNAL));
	CALL(send(s, buf, 66000, 0));
	await(t, POLLIN);
	CALL(read(t, buf, sizeof(buf)));
	parts[0].iov_base = buf, parts[0].iov_len = 2, parts[2].iov_base = buf + 2, parts[2].iov_len = 2;
	CALL(readv(t, parts, 3));
	printf("%.4s\n", buf);
	CALL(recv(t, buf, 2, MSG_TRUNC));
	CALL(recvfrom(t, buf, sizeof(buf), 0, NULL, NULL));

	struct mmsghdr many[4];
	memset(many, 0, sizeof(many));
	struct iovec piece[4];
	for (int n = 0; n < 4; n++) {
		piece[n].iov_base = "wxyz", piece[n].iov_len = n + 1;
		many[n].msg_hdr.msg_iov = &piece[n], many[n].msg_hdr.msg_iovlen = 1;
	}
	CALL(sendmmsg(s, many, 4, 0));
	await(t, POLLIN);
	for (int n = 0; n < 4; n++)
		piece[n].iov_base = buf + 10 * n, piece[n].iov_len = 10, many[n].msg_len = 0;
	await_messages(t, 4);
	CALL(recvmmsg(t, many, 4, MSG_WAITFORONE, NULL));
	printf("%u %u %u %u\n", many[0].msg_len, many[1].msg_len, many[2].msg_len, many[3].msg_len);
	CALL(recvmmsg(t, many, 4, MSG_DONTWAIT, NULL));

	/* Fewer than there is room for, more than there is time for, and one that cannot be sent. */
	struct timespec none = {0, 0};
	static struct iovec lots[1025];
	CALL(sendmmsg(s, many, 2, 0));
	await(t, POLLIN);
	usleep(200000);
	CALL(recvmmsg(t, many, 4, MSG_WAITFORONE, NULL));
	CALL(sendmmsg(s, many, 2, 0));
	await(t, POLLIN);
	usleep(200000);
	CALL(recvmmsg(t, many, 2, 0, &none));
	CALL(recvmmsg(t, many, 2, 0, &none));
	piece[1].iov_base = buf, piece[1].iov_len = 66001;
	CALL(sendmmsg(s, many, 2, 0));
	await(t, POLLIN);
	CALL(recv(t, buf, 100, 0));
	CALL(readv(t, lots, 1025));
	CALL(writev(s, lots, 1025));
	CALL(write(s, "longer", 6));
	await(t, POLLIN);
	piece[0].iov_base = buf, piece[0].iov_len = 2;
	CALL(recvmsg(t, &many[0].msg_hdr, 0));
	printf("flags %x\n", many[0].msg_hdr.msg_flags);
	MUST(close(s));
	MUST(close(t));
}

static void returned(void)
{
	struct sockaddr_tipc to = service(18711, 3);
	int s = opened(SOCK_RDM), t = bound(SOCK_RDM, 18711), no = 0;
	MUST(setsockopt(s, SOL_TIPC, TIPC_DEST_DROPPABLE, &no, sizeof(no)));
	for (int with = 0; with < 2; with++) {
		CALL(sendto(s, "stay!", 5, 0, ADDRESS(to)));
		await(t, POLLIN);
		CALL(recv(t, buf, 5, MSG_PEEK));
		MUST(close(t));
		await(s, POLLIN);
		received(s, 0, with ? 4096 : 0);
		t = bound(SOCK_RDM, 18711);
	}
	memset(buf, 'l', 2000);
	CALL(sendto(s, buf, 2000, 0, ADDRESS(to)));
	await(t, POLLIN);
	MUST(close(t));
	await(s, POLLIN);
	received(s, 0, 4096);
	MUST(close(s));
}

static void connections(int kind)
{
	struct sockaddr_tipc from, to = service(18720, 1), nobody = service(18729, 1), dead = {0};
	socklen_t len = sizeof(from);
	int listener = bound(kind, 18720), s = opened(kind), t;

	printf("connections of kind %d\n", kind);
	CALL(listen(listener, 1));
	int listens = 0;
	len = sizeof(listens);
	MUST(getsockopt(listener, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len));
	printf("listens: %d\n", listens);
	len = sizeof(from);
	CALL(accept4(listener, NULL, NULL, 1));
	MUST(fcntl(listener, F_SETFL, O_NONBLOCK));
	CALL(accept(listener, NULL, NULL));
	CALL(accept(s, NULL, NULL));
	CALL(send(s, "x", 1, 0));
	CALL(recv(s, buf, 1, 0));
	CALL(shutdown(s, SHUT_RDWR));
	CALL(connect(s, (struct sockaddr *)&to, 17));
	CALL(connect(s, ADDRESS(dead)));
	CALL(connect(s, ADDRESS(nobody)));
	dead.family = AF_TIPC, dead.addrtype = TIPC_SOCKET_ADDR, dead.addr.id.ref = 4242;
	CALL(connect(s, ADDRESS(dead)));
	CALL(connect(s, ADDRESS(to)));
	CALL(send(s, "x", 1, 0));
	CALL(recv(s, buf, 1, MSG_DONTWAIT));
	MUST(close(s));

	s = opened(kind);
	MUST(fcntl(s, F_SETFL, O_NONBLOCK));
	CALL(connect(s, ADDRESS(to)));
	struct pollfd p = {.fd = s, .events = POLLOUT | POLLIN};
	printf("before accept: %d\n", poll(&p, 1, 0));
	CALL(connect(s, ADDRESS(to)));
	await(listener, POLLIN);
	t = accept4(listener, (struct sockaddr *)&from, &len, SOCK_CLOEXEC);
	MUST(t);
	printf("accepted: %u bytes of type %d, nonblocking %d, close on exec %d\n", len, from.addrtype,
	       !!(fcntl(t, F_GETFL) & O_NONBLOCK), fcntl(t, F_GETFD));
	await(s, POLLOUT);
	CALL(connect(s, ADDRESS(to)));
	len = sizeof(from);
	CALL(getpeername(s, (struct sockaddr *)&from, &len));
	struct sockaddr_tipc own;
	len = sizeof(own);
	MUST(getsockname(t, (struct sockaddr *)&own, &len));
	printf("the peer is the accepted socket: %d\n", own.addr.id.ref == from.addr.id.ref);
	CALL(recv(s, buf, 10, 0));
	CALL(write(s, "first", 5));
	CALL(send(s, "", 0, 0));
	await(t, POLLIN);
	received(t, 0, 4096);
	CALL(write(t, "second", 6));
	await(s, POLLIN);
	received(s, 0, 4096);
	CALL(write(s, "last", 4));
	CALL(shutdown(s, SHUT_WR));
	CALL(shutdown(s, SHUT_RDWR));
	CALL(shutdown(s, SHUT_RDWR));
	CALL(write(s, "x", 1));
	CALL(recv(s, buf, 10, 0));
	MUST(fcntl(s, F_SETFL, 0));
	CALL(recv(s, buf, 10, 0));
	p.fd = s;
	MUST(poll(&p, 1, 0));
	printf("own end: %x\n", p.revents);
	await(t, POLLHUP);
	p.fd = t;
	MUST(poll(&p, 1, 0));
	printf("their end: %x\n", p.revents);
	CALL(recv(t, buf, 100, 0));
	CALL(recv(t, buf, 100, 0));
	CALL(recv(t, buf, 100, MSG_DONTWAIT));
	CALL(write(t, "x", 1));
	MUST(close(s));
	MUST(close(t));

	s = opened(kind);
	MUST(fcntl(s, F_SETFL, O_NONBLOCK));
	CALL(sendto(s, "with it", 7, 0, ADDRESS(to)));
	await(listener, POLLIN);
	t = accept(listener, NULL, NULL);
	MUST(t);
	await(t, POLLIN);
	CALL(recv(t, buf, 100, 0));
	await(s, POLLOUT);
	MUST(close(t));
	await(s, POLLHUP);
	CALL(recv(s, buf, 100, 0));
	CALL(recv(s, buf, 100, 0));
	received(s, 0, 4096);
	CALL(write(s, "x", 1));
	MUST(close(s));

	/* The end is reported whatever is waited for, and before the unread data. */
	s = opened(kind);
	MUST(fcntl(s, F_SETFL, O_NONBLOCK));
	CALL(connect(s, ADDRESS(to)));
	await(listener, POLLIN);
	t = accept(listener, NULL, NULL);
	MUST(t);
	printf("accepted: close on exec %d\n", fcntl(t, F_GETFD));
	await(s, POLLOUT);
	for (int n = 0; n < 3; n++)
		MUST(write(t, buf, 1000));
	MUST(close(t));
	for (int n = 0; n < 2; n++) {
		await(s, 0);
		p.fd = s, p.events = 0;
		MUST(poll(&p, 1, -1));
		printf("events %x\n", p.revents);
	}
	long got, all = 0;
	while ((got = recv(s, buf, sizeof(buf), 0)) > 0)
		all += got;
	printf("then %ld bytes\n", all);
	MUST(close(s));
	MUST(close(listener));
}

static void pairs(void)
{
	int kinds[] = {SOCK_STREAM, SOCK_RDM, SOCK_SEQPACKET};
	for (int n = 0; n < 3; n++) {
		int pair[2];
		CALL(socketpair(AF_TIPC, kinds[n], 0, pair));
		CALL(write(pair[0], "there", 5));
		await(pair[1], POLLIN);
		CALL(read(pair[1], buf, 100));
		CALL(write(pair[1], "and back", 8));
		await(pair[0], POLLIN);
		CALL(read(pair[0], buf, 100));
		if (kinds[n] == SOCK_STREAM) {
			/* Closed by a stream of the C library, after which the number is reused. */
			fclose(fdopen(pair[1], "r"));
			MUST(dup2(open("/dev/null", O_WRONLY), pair[1]));
			CALL(write(pair[1], "gone", 4));
		}
		MUST(close(pair[0]));
		MUST(close(pair[1]));
	}
}

static void topology(void)
{
	struct sockaddr_tipc server = service(TIPC_TOP_SRV, TIPC_TOP_SRV);
	struct tipc_subscr wanted = {.seq = {18730, 0, 99}, .timeout = TIPC_WAIT_FOREVER, .filter = TIPC_SUB_PORTS};
	struct tipc_event event;
	int s = opened(SOCK_SEQPACKET), t = bound(SOCK_RDM, 18730);
	MUST(connect(s, ADDRESS(server)));
	memcpy(wanted.usr_handle, "handle!", 8);
	CALL(send(s, &wanted, sizeof(wanted), 0));
	for (int n = 0; n < 2; n++) {
		CALL(recv(s, &event, sizeof(event), 0));
		printf("event %u, %u to %u, %.7s\n", event.event, event.found_lower, event.found_upper, event.s.usr_handle);
		if (n == 0)
			MUST(close(t));
	}
	MUST(close(s));
}

static void groups(void)
{
	struct tipc_group_req one = {18740, 1, TIPC_CLUSTER_SCOPE, TIPC_GROUP_MEMBER_EVTS}, other = {18740, 2, TIPC_CLUSTER_SCOPE, 0};
	int s = opened(SOCK_RDM), t = opened(SOCK_RDM);
	CALL(setsockopt(s, SOL_TIPC, TIPC_GROUP_JOIN, &one, 15));
	CALL(setsockopt(s, SOL_TIPC, TIPC_GROUP_JOIN, &one, sizeof(one)));
	CALL(setsockopt(t, SOL_TIPC, TIPC_GROUP_JOIN, &other, sizeof(other)));
	await(s, POLLIN);
	received(s, 0, 0);
	await(t, POLLOUT);
	CALL(send(t, "to all", 6, 0));
	await(s, POLLIN);
	struct sockaddr_tipc from[2];
	socklen_t len = sizeof(from);
	CALL(recvfrom(s, buf, 100, 0, (struct sockaddr *)from, &len));
	printf("%u bytes: member %u of group %u\n", len, from[1].addr.name.name.instance, from[1].addr.name.name.type);
	CALL(setsockopt(t, SOL_TIPC, TIPC_GROUP_LEAVE, NULL, 0));
	await(s, POLLIN);
	received(s, 0, 0);
	MUST(close(s));
	MUST(close(t));
}

static void readiness(void)
{
	int listener = bound(SOCK_SEQPACKET, 18750), epoll = epoll_create1(0);
	struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, found[4];
	fd_set set;
	struct timeval now = {0, 0};
	FD_ZERO(&set);
	FD_SET(listener, &set);
	CALL(select(listener + 1, &set, NULL, NULL, &now));
	MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event));
	CALL(epoll_wait(epoll, found, 4, 0));
	int s[3];
	for (int n = 0; n < 3; n++) {
		struct sockaddr_tipc to = service(18750, 1);
		s[n] = socket(AF_TIPC, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
		CALL(connect(s[n], ADDRESS(to)));
	}
	/* Whichever process is ready accepts and then serves. */
	int accepted = 0, served = 0;
	while (served < 3) {
		int ready = epoll_wait(epoll, found, 4, 20000);
		must("epoll_wait", ready > 0 ? 0 : -1);
		for (int n = 0; n < ready; n++) {
			int fd = found[n].data.fd;
			if (fd == listener) {
				event.data.fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
				MUST(event.data.fd);
				MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, event.data.fd, &event));
				if (++accepted < 3)
					continue;
				for (int c = 0; c < 3; c++) {
					await(s[c], POLLOUT);
					CALL(send(s[c], "ping", 4, 0));
				}
			} else {
				MUST(recv(fd, buf, 100, 0));
				MUST(send(fd, "pong", 4, 0));
				served++;
			}
		}
	}
	for (int n = 0; n < 3; n++) {
		fd_set out;
		FD_ZERO(&set);
		FD_SET(s[n], &set);
		FD_ZERO(&out);
		FD_SET(s[n], &out);
		now.tv_sec = 20;
		await(s[n], POLLIN);
		CALL(select(s[n] + 1, &set, &out, NULL, &now));
		CALL(recv(s[n], buf, 100, 0));
		MUST(close(s[n]));
	}
	MUST(close(epoll));
	MUST(close(listener));
}

int main(void)
{
	kinds();
	nowhere();
	nodes();
	names();
	datagrams();
	returned();
	connections(SOCK_SEQPACKET);
	connections(SOCK_STREAM);
	pairs();
	topology();
	groups();
	readiness();
}
