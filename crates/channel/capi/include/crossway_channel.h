/* Named channels between two processes, each over the transport that suits it best at the time. Link with
 * -lcrossway_channel.
 *
 * Calls that can fail return 0 or a length on success, and a negative errno on failure; cchannel_error then returns the
 * reason as text. No call raises SIGPIPE. timeout_ms: a negative value waits forever. With 0, cchannel_send and
 * cchannel_recv fail with -EAGAIN if they would have to wait. Otherwise a call fails with -ETIMEDOUT when the time is
 * over.
 *
 * Several threads may use a channel; a thread that sends does not wait for a thread that receives. A child process must
 * not use its parent's channels after fork.
 *
 * Names on other hosts are looked up as the environment says: CROSSWAY_CHANNEL_HOSTS (a file of names and addresses) or
 * CROSSWAY_CHANNEL_TIPC, with CROSSWAY_CHANNEL_KEY (a file) or CROSSWAY_CHANNEL_PLAIN=1; docs/CHANNEL.md explains them.
 * Without CROSSWAY_CHANNEL_KEY and CROSSWAY_CHANNEL_PLAIN, listening on such a name and connecting to it fail with
 * -EACCES.
 *
 * ABI: programs bind to libcrossway_channel.so.0. The number changes when a structure or a prototype here changes its
 * meaning; functions may be added without a new number. Only the functions declared here are exported. */
#ifndef CROSSWAY_CHANNEL_H
#define CROSSWAY_CHANNEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cchannel cchannel;
typedef struct cchannel_listener cchannel_listener;

/* Options of a channel. A zero stands for the default; NULL instead of a structure stands for all defaults. */
typedef struct cchannel_options {
    uint64_t max_message;        /* longest message in bytes; the connecting end decides; 0: 65536, or 1400 if lossy */
    uint32_t pollable;           /* not 0: cchannel_poll_fd returns a descriptor */
    uint32_t cpu_budget_percent; /* CPU time that an end may spend waiting, in percent of a CPU; 0: 100 */
    const char *pin;             /* "shm-spin", "shm-futex", "shm-eventfd" or "uds-seqpacket": only this one; NULL: any */
    uint32_t lossy;              /* not 0: messages between hosts may be lost; they use UDP if both ends set this */
} cchannel_options;

/* PROTOTYPES */
/* Listens on a name. */
int cchannel_listen(const char *name, const cchannel_options *wanted, cchannel_listener **out);
/* Accepts the next channel of a listener. */
int cchannel_accept(const cchannel_listener *listener, int64_t timeout_ms, cchannel **out);
/* Stops listening; the channels that were accepted stay open. */
void cchannel_listener_close(cchannel_listener *listener);
/* Connects to a name. -ECONNREFUSED: nobody listened in time. */
int cchannel_connect(const char *name, const cchannel_options *wanted, int64_t timeout_ms, cchannel **out);
/* Sends a message. -EMSGSIZE: too long; -EPIPE: the peer is gone or receives no more. */
int cchannel_send(const cchannel *channel, const void *bytes, size_t length, int64_t timeout_ms);
/* Receives a message; returns its length. -EMSGSIZE: it does not fit and stays for the next call; -ESHUTDOWN: the
 * peer closed, and everything was received; -ECONNRESET: the peer died or its connection broke; -EPROTO:
 * the peer violated the protocol. */
int64_t cchannel_recv(const cchannel *channel, void *buffer, size_t size, int64_t timeout_ms);
/* Returns a descriptor that polls readable while a message waits. It stays the same on all transports, and belongs to
 * the channel. */
int cchannel_poll_fd(const cchannel *channel);
/* Returns the name of the transport in use. */
const char *cchannel_transport(const cchannel *channel);
/* Switches to a transport. */
int cchannel_switch(const cchannel *channel, const char *name, int64_t timeout_ms);
/* Closes a channel. The peer first receives everything that was sent, then learns of the close. */
void cchannel_close(cchannel *channel);
/* Returns the reason for the calling thread's last failure, as text; the empty string before the first failure. The
 * text is valid until the thread's next call fails. */
const char *cchannel_error(void);

#ifdef __cplusplus
}
#endif

#endif
