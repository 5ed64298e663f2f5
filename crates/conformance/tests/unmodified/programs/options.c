/* Every option with every form of its value, what connections inherit and how they time out, and subscriptions of every form. */
#include "check.h"
#include <byteswap.h>

static const int kinds[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_RDM, SOCK_SEQPACKET};

static void options(void)
{
	for (int n = 0; n < 4; n++)
		for (int option = TIPC_IMPORTANCE - 1; option <= 140; option++) {
			int fd = opened(kinds[n]);
			struct tipc_group_req group = {18800 + n, 1, TIPC_CLUSTER_SCOPE, 0};
			int values[] = {0, 1, 3, 4, 70000};
			socklen_t len = sizeof(values[0]);
			int value = -9;
			printf("kind %d, option %d\n", kinds[n], option);
			CALL(getsockopt(fd, SOL_TIPC, option, &value, &len));
			printf("%d in %u bytes\n", value, len);
			len = 3;
			CALL(getsockopt(fd, SOL_TIPC, option, &value, &len));
			len = 8;
			long long wide = 0;
			if (CALL(getsockopt(fd, SOL_TIPC, option, &wide, &len)) == 0)
				printf("%u bytes\n", len);
			CALL(setsockopt(fd, SOL_TIPC, option, &value, 3));
			CALL(setsockopt(fd, SOL_TIPC, option, NULL, 0));
			for (int v = 0; v < 5 && option != TIPC_GROUP_JOIN; v++)
				CALL(setsockopt(fd, SOL_TIPC, option, &values[v], sizeof(values[v])));
			CALL(setsockopt(fd, SOL_TIPC, option, &group, sizeof(group)));
			len = sizeof(value);
			if (CALL(getsockopt(fd, SOL_TIPC, option, &value, &len)) == 0)
				printf("now %d\n", value);
			MUST(close(fd));
		}
}

static void inherited(int kind)
{
	struct sockaddr_tipc to = service(18810 + kind, 1);
	int listener = bound(kind, 18810 + kind), s = opened(kind), options[] = {127, 128, 129, 130};
	int value = TIPC_CRITICAL_IMPORTANCE;
	MUST(setsockopt(s, SOL_TIPC, TIPC_IMPORTANCE, &value, sizeof(value)));
	value = 3000;
	MUST(setsockopt(s, SOL_TIPC, TIPC_CONN_TIMEOUT, &value, sizeof(value)));
	MUST(fcntl(s, F_SETFL, O_NONBLOCK));
	CALL(connect(s, ADDRESS(to)));
	await(listener, POLLIN);
	int accepted = accept(listener, NULL, NULL);
	MUST(accepted);
	await(s, POLLOUT);
	int *both[] = {&s, &accepted};
	for (int end = 0; end < 2; end++)
		for (int o = 0; o < 4; o++) {
			socklen_t len = sizeof(value);
			MUST(getsockopt(*both[end], SOL_TIPC, options[o], &value, &len));
			printf("kind %d, end %d: option %d is %d\n", kind, end, options[o], value);
		}
	value = TIPC_LOW_IMPORTANCE;
	CALL(setsockopt(s, SOL_TIPC, TIPC_IMPORTANCE, &value, sizeof(value)));
	CALL(setsockopt(accepted, SOL_TIPC, TIPC_CONN_TIMEOUT, &value, sizeof(value)));
	close(s), close(accepted), close(listener);
}

static void unanswered(int kind)
{
	struct sockaddr_tipc to = service(18820 + kind, 1);
	int listener = bound(kind, 18820 + kind), s = opened(kind), value = 150;
	MUST(setsockopt(s, SOL_TIPC, TIPC_CONN_TIMEOUT, &value, sizeof(value)));
	CALL(connect(s, ADDRESS(to)));
	struct pollfd p = {.fd = s, .events = POLLIN | POLLOUT};
	CALL(poll(&p, 1, 0));
	CALL(send(s, "x", 1, MSG_DONTWAIT));
	close(s), close(listener);
}

enum { TYPE = 18830, BARRIER = 18839 };

static void ask(int fd, struct tipc_subscr wanted, int swapped, size_t len)
{
	char bytes[60] = {0};
	__u32 *words = (__u32 *)&wanted;
	for (int w = 0; swapped && w < 5; w++)
		words[w] = bswap_32(words[w]);
	memcpy(bytes, &wanted, sizeof(wanted));
	/* A client that broke the rules before gets its connection closed, now or soon. */
	if (send(fd, bytes, len, 0) < 0 && errno != EPIPE)
		told("request", -1);
}

/* Reads the events up to now: requests are processed in order, and this one ends immediately. */
static void hear(int fd)
{
	struct tipc_subscr barrier = {{BARRIER, 0, 0}, 1, TIPC_SUB_PORTS, "barrier"};
	struct tipc_event event;
	ask(fd, barrier, 0, sizeof(barrier));
	for (;;) {
		long len;
		await(fd, POLLIN);
		len = recv(fd, &event, sizeof(event), 0);
		if (len != sizeof(event)) {
			told("end", len);
			return;
		}
		int swapped = event.event > 3;
		__u32 words[] = {event.event, event.found_lower, event.found_upper, event.s.seq.type, event.s.filter};
		if (words[3] == BARRIER)
			return;
		printf("event");
		for (int n = 0; n < 5; n++)
			printf(" %u", swapped ? bswap_32(words[n]) : words[n]);
		printf(" %.8s\n", event.s.usr_handle);
	}
}

static void subscriptions(void)
{
	struct sockaddr_tipc server = service(TIPC_TOP_SRV, TIPC_TOP_SRV), wide = range(TYPE, 5, 6), own = range(TYPE, 7, 7);
	/* Ports, services, neither; without what other nodes do not see, without what they see, without what exists already. */
	__u32 filters[] = {1, 2, 3, 9, 0x11, 0x21, 0x22, 0x41, 0x42, 0x81, 0x82, 0xa1};
	int early = opened(SOCK_RDM), also = opened(SOCK_RDM), late = opened(SOCK_RDM);
	MUST(bind(early, ADDRESS(wide)));
	MUST(bind(also, ADDRESS(wide)));
	for (unsigned n = 0; n < 2 * sizeof(filters) / sizeof(*filters); n++) {
		int fd = opened(SOCK_SEQPACKET);
		struct tipc_subscr wanted = {{TYPE, 0, 99}, TIPC_WAIT_FOREVER, filters[n / 2], "handle!"};
		printf("filter %x, %s order\n", filters[n / 2], n % 2 ? "other" : "own");
		MUST(connect(fd, ADDRESS(server)));
		ask(fd, wanted, n % 2, sizeof(wanted));
		hear(fd);
		for (int scope = TIPC_CLUSTER_SCOPE; filters[n / 2] != 3 && scope <= TIPC_NODE_SCOPE; scope++) {
			own.scope = scope;
			MUST(bind(late, ADDRESS(own)));
			MUST(bind(late, ADDRESS(own)));
			own.scope = -scope;
			MUST(bind(late, ADDRESS(own)));
			MUST(bind(late, ADDRESS(own)));
			hear(fd);
		}
		close(fd);
	}
	for (size_t len = 20; len < 60; len += 8) {
		int fd = opened(SOCK_SEQPACKET);
		struct tipc_subscr wanted = {{TYPE, 0, 99}, TIPC_WAIT_FOREVER, TIPC_SUB_PORTS, "handle!"};
		printf("%zu bytes\n", len);
		MUST(connect(fd, ADDRESS(server)));
		ask(fd, wanted, 0, len);
		hear(fd);
		close(fd);
	}
}

int main(void)
{
	alarm(100);
	options();
	inherited(SOCK_STREAM), inherited(SOCK_SEQPACKET);
	unanswered(SOCK_STREAM), unanswered(SOCK_SEQPACKET);
	subscriptions();
	return 0;
}
