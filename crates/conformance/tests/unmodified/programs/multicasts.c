/* Multicasts to several sockets of one program, which waits for each of them in every possible way, without a time limit: a lost wake-up or copy makes it
 * wait until the watchdog ends it.
 *
 *   multicasts ROUNDS [SOCKETS [SENDERS]] */
#include "check.h"
#include <sys/epoll.h>
#include <sys/select.h>

enum { TYPE = 18980, MOST = 64 };
static int fds[MOST], sockets = 2, waits[4];

/* Waits until at least one of the wanted sockets can be received from. */
static void wait_for(const char *wanted, int way)
{
	waits[way]++;
	if (way == 0) {
		struct pollfd p[MOST];
		for (int n = 0; n < sockets; n++)
			p[n] = (struct pollfd){.fd = wanted[n] ? fds[n] : -1, .events = POLLIN};
		must("poll", poll(p, sockets, -1));
	} else if (way == 1) {
		fd_set set;
		int last = 0;
		FD_ZERO(&set);
		for (int n = 0; n < sockets; n++) {
			if (wanted[n])
				FD_SET(fds[n], &set);
			last = fds[n] > last ? fds[n] : last;
		}
		must("select", select(last + 1, &set, NULL, NULL, NULL));
	} else {
		/* Level-triggered, then edge-triggered. */
		int set = epoll_create1(0);
		for (int n = 0; n < sockets; n++) {
			struct epoll_event e = {.events = EPOLLIN | (way == 3 ? EPOLLET : 0)};
			if (wanted[n])
				must("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, fds[n], &e));
		}
		struct epoll_event got;
		must("epoll_wait", epoll_wait(set, &got, 1, -1));
		close(set);
	}
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 0, senders = argc > 3 ? atoi(argv[3]) : 1;
	int total[MOST] = {0};
	struct sockaddr_tipc to = range(TYPE, 0, 99);
	if (argc > 2)
		sockets = atoi(argv[2]);
	if (sockets < 1 || sockets > MOST)
		return 2;
	for (int n = 0; n < sockets; n++) {
		struct sockaddr_tipc a = range(TYPE, n, n + 1);
		fds[n] = opened(SOCK_RDM);
		MUST(bind(fds[n], ADDRESS(a)));
	}
	/* Further senders are processes: a round is one message from each. */
	int go[2], from = opened(SOCK_RDM);
	MUST(pipe(go));
	for (int s = 1; s < senders; s++) {
		pid_t child = fork();
		must("fork", child);
		if (child == 0) {
			int own = opened(SOCK_RDM);
			char word;
			close(go[1]);
			while (read(go[0], &word, 1) == 1)
				MUST(sendto(own, "others", 6, 0, ADDRESS(to)));
			_exit(0);
		}
	}
	close(go[0]);
	for (int round = 0; round < rounds; round++) {
		char got[100], words[MOST] = {0}, missing[MOST];
		int left = senders * sockets, have[MOST] = {0};
		if (senders > 1)
			must("write", write(go[1], words, senders - 1));
		MUST(sendto(from, "mine", 4, 0, ADDRESS(to)));
		while (left > 0) {
			for (int n = 0; n < sockets; n++)
				missing[n] = have[n] < senders;
			wait_for(missing, round % 4);
			for (int n = 0; n < sockets; n++) {
				while (recv(fds[n], got, sizeof(got), MSG_DONTWAIT) > 0) {
					have[n]++;
					total[n]++;
					left--;
				}
			}
		}
	}
	close(go[1]);
	while (wait(NULL) > 0) {
	}
	for (int n = 0; n < sockets; n++) {
		if (total[n] != rounds * senders) {
			printf("socket %d received %d\n", n, total[n]);
			return 1;
		}
	}
	printf("%d multicasts at each of %d sockets\n", rounds * senders, sockets);
	return 0;
}
