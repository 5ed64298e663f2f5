/* One channel by name over the best transport now. Link with -lcrossway_channel.
 *
 * Every call returns 0 or a length, or a negative errno; cchannel_error says in words why the thread's last call failed. No call raises
 * SIGPIPE. timeout_ms: negative waits for ever, 0 does not wait (-EAGAIN), else -ETIMEDOUT when it is over.
 *
 * A channel may be used by several threads; one that sends does not wait for one that receives. A child of fork must not use it.
 *
 * Names on other hosts are looked up as the environment says: CROSSWAY_CHANNEL_HOSTS (a file of names and addresses) or CROSSWAY_CHANNEL_TIPC,
 * with CROSSWAY_CHANNEL_KEY (a file) or CROSSWAY_CHANNEL_PLAIN=1; docs/CHANNEL.md explains them. Without a key and without the last one,
 * listening on such a name and connecting to it fail with -EACCES.
 *
 * ABI: programs bind to libcrossway_channel.so.0. The number rises when a structure or a prototype here changes its meaning; functions may
 * be added without that. What is not named here is not exported. */
#ifndef CROSSWAY_CHANNEL_H
#define CROSSWAY_CHANNEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cchannel cchannel;
typedef struct cchannel_listener cchannel_listener;

/* Zeroes are the defaults, and so is NULL instead of a structure. */
typedef struct cchannel_options {
    uint64_t max_message;        /* longest message in bytes; the connecting end decides; 0: 65536, or 1400 if lossy */
    uint32_t pollable;           /* not 0: cchannel_poll_fd has a descriptor */
    uint32_t cpu_budget_percent; /* CPU time that an end may spend waiting, in percent of a CPU; 0: 100 */
    const char *pin;             /* "shm-spin", "shm-futex", "shm-eventfd" or "uds-seqpacket", and no other; NULL: the best */
    uint32_t lossy;              /* not 0: between hosts, messages may be lost: they travel by UDP if both ends set this */
} cchannel_options;

/* PROTOTYPES */
/* Listens on a name. */
int cchannel_listen(const char *name, const cchannel_options *wanted, cchannel_listener **out);
/* Takes the next channel of a listener. */
int cchannel_accept(const cchannel_listener *listener, int64_t timeout_ms, cchannel **out);
/* Stops listening; the channels that were accepted stay open. */
void cchannel_listener_close(cchannel_listener *listener);
/* Connects to a name. -ECONNREFUSED: nobody listened in time. */
int cchannel_connect(const char *name, const cchannel_options *wanted, int64_t timeout_ms, cchannel **out);
/* Sends a message. -EMSGSIZE: too long; -EPIPE: the peer is gone or receives no more. */
int cchannel_send(const cchannel *channel, const void *bytes, size_t length, int64_t timeout_ms);
/* Receives a message; returns its length. -EMSGSIZE: it does not fit and stays; -ESHUTDOWN: the peer closed, and all was received;
 * -ECONNRESET: the peer died; -EPROTO: it broke the protocol. */
int64_t cchannel_recv(const cchannel *channel, void *buffer, size_t size, int64_t timeout_ms);
/* The descriptor that polls readable while a message waits, the same whatever the transport; it belongs to the channel. */
int cchannel_poll_fd(const cchannel *channel);
/* The transport in use. */
const char *cchannel_transport(const cchannel *channel);
/* Switches to a transport. */
int cchannel_switch(const cchannel *channel, const char *name, int64_t timeout_ms);
/* Closes a channel: the peer receives what was sent, then the end. */
void cchannel_close(cchannel *channel);
/* Why the thread's last call failed, in words. */
const char *cchannel_error(void);

#ifdef __cplusplus
}
#endif

#endif
