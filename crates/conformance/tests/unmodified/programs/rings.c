/* An echo over AF_TIPC by io_uring (liburing), or by plain calls where there is no io_uring, as programs do that must run on older kernels. */
#include "check.h"
#include <liburing.h>

/* One operation, to its end. */
static long done(struct io_uring *ring)
{
	struct io_uring_cqe *cqe;
	MUST(io_uring_submit(ring));
	int error = io_uring_wait_cqe(ring, &cqe);
	if (error < 0)
		return error;
	long outcome = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	return outcome;
}

int main(void)
{
	struct io_uring ring;
	char got[16] = {0};
	int server = bound(SOCK_RDM, 18970), client = opened(SOCK_RDM);
	struct sockaddr_tipc to = service(18970, 1);

	MUST(connect(client, ADDRESS(to)));
	int error = io_uring_queue_init(4, &ring, 0);
	if (error < 0) {
		printf("no io_uring: %s\n", strerrorname_np(-error));
		printf("again: %s\n", strerrorname_np(-io_uring_queue_init(4, &ring, 0)));
		MUST(send(client, "plain", 5, 0));
		MUST(recv(server, got, sizeof(got), 0));
		printf("received: %s\n", got);
		return 0;
	}
	io_uring_prep_send(io_uring_get_sqe(&ring), client, "ring", 4, 0);
	printf("send: %ld\n", done(&ring));
	io_uring_prep_recv(io_uring_get_sqe(&ring), server, got, sizeof(got), 0);
	printf("recv: %ld\n", done(&ring));
	printf("received: %s\n", got);
	io_uring_queue_exit(&ring);
	return 0;
}
