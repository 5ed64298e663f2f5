/* TIPC sockets over the kernel's AF_TIPC or a tipcd. Link with -lcrossway_tipc (pkg-config crossway-tipc).
 *
 * Every call that can fail returns 0, a number of bytes or a descriptor, or else a negative errno (the same as with
 * AF_TIPC). No call raises SIGPIPE.
 * timeout_ms: a negative value waits for ever, 0 does not wait (-EAGAIN, -EINPROGRESS).
 *
 * ABI: programs are linked against libcrossway_tipc.so.0. This number is incremented when a structure, a constant or a
 * prototype here changes its meaning, but not when functions or constants are added. Only the names declared here are
 * exported.
 *
 * The prototypes follow src/ffi.rs; tests/header.rs checks that they match and, with CROSSWAY_WRITE=1, writes them. */
#ifndef CROSSWAY_TIPC_H
#define CROSSWAY_TIPC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of socket: SOCK_STREAM, SOCK_DGRAM, SOCK_RDM, SOCK_SEQPACKET. */
enum { CTIPC_STREAM = 1, CTIPC_DGRAM = 2, CTIPC_RDM = 4, CTIPC_SEQPACKET = 5 };

/* Forms of an address, and scopes of a binding (a negative scope withdraws the binding). */
enum { CTIPC_SERVICE_RANGE = 1, CTIPC_SERVICE = 2, CTIPC_SOCKET = 3 };
enum { CTIPC_CLUSTER = 2, CTIPC_NODE = 3 };

/* Has the layout of struct sockaddr_tipc. family is 30 (AF_TIPC). */
typedef struct ctipc_address {
    uint16_t family;
    uint8_t form;
    int8_t scope;
    uint32_t a; /* service type, or port of a socket */
    uint32_t b; /* lower, or instance, or node of a socket */
    uint32_t c; /* upper, or node that looks the instance up (0: the whole cluster) */
} ctipc_address;

/* Options of level SOL_TIPC, for ctipc_setsockopt and ctipc_getsockopt. Options with a * take no value: pass 0. */
enum {
    CTIPC_IMPORTANCE = 127,
    CTIPC_SRC_DROPPABLE = 128,
    CTIPC_DEST_DROPPABLE = 129,
    CTIPC_CONN_TIMEOUT = 130,     /* ms */
    CTIPC_NODE_RECVQ_DEPTH = 131, /* read only */
    CTIPC_SOCK_RECVQ_DEPTH = 132, /* read only */
    CTIPC_MCAST_BROADCAST = 133,  /* * */
    CTIPC_MCAST_REPLICAST = 134,  /* * */
    CTIPC_GROUP_JOIN = 135,       /* read only: the group, or 0; set by ctipc_join */
    CTIPC_SOCK_RECVQ_USED = 137,  /* read only */
    CTIPC_NODELAY = 138
};

/* Flags of ctipc_join: receive this socket's own broadcasts; report members that join and leave. */
enum { CTIPC_LOOPBACK = 1, CTIPC_MEMBER_EVENTS = 2 };

/* Maximum length of a message in bytes; a write to a stream may be longer. */
enum { CTIPC_MESSAGE_MAX = 66000 };

/* Values of event in ctipc_message: a message was received, a message of ours was returned, the connection ended, a
 * member of the group joined, a member left. */
enum { CTIPC_DATA = 0, CTIPC_RETURNED = 1, CTIPC_END = 2, CTIPC_MEMBER_UP = 3, CTIPC_MEMBER_DOWN = 4 };

typedef struct ctipc_message {
    ctipc_address from;
    uint32_t event;
    uint32_t error; /* TIPC's code: 1 no name, 2 no port, 3 no node, 4 overload, 5 shut down */
    uint32_t truncated;
    uint32_t has_service; /* whether service, lower and upper hold the service that was addressed */
    uint32_t service;
    uint32_t lower;
    uint32_t upper;
    uint32_t has_member; /* whether member holds the sender's instance in the group */
    uint32_t member;
} ctipc_message;

typedef struct ctipc_socket ctipc_socket;

/* The argument path of ctipc_open is NULL (the kernel's TIPC if there is one, otherwise the tipcd at the default
 * path), "kernel" (only the kernel's TIPC), or the path of a tipcd's socket. */
/* PROTOTYPES */
/* Opens a socket of kind `kind` and stores it in `*out`. */
int ctipc_open(int kind, const char *path, ctipc_socket **out);
/* Returns the reason why the last `ctipc_open` of this thread failed; valid until this thread's next `ctipc_open`. */
const char *ctipc_error(void);
/* Closes a socket. */
void ctipc_close(ctipc_socket *s);
/* Returns the socket's file descriptor; use it for polling only. */
int ctipc_fd(const ctipc_socket *s);
/* Binds the socket; a negative scope withdraws the binding, NULL withdraws all bindings. */
int ctipc_bind(const ctipc_socket *s, const ctipc_address *address);
/* Makes the socket accept connections. */
int ctipc_listen(const ctipc_socket *s);
/* Connects the socket; on a connectionless socket, sets the default destination (NULL clears it). */
int ctipc_connect(const ctipc_socket *s, const ctipc_address *to, int64_t timeout_ms);
/* Accepts a connection; stores its socket in `*out` and, unless `from` is NULL, the peer's address in `*from`. */
int ctipc_accept(const ctipc_socket *s, ctipc_socket **out, ctipc_address *from, int64_t timeout_ms);
/* Sends a message, or part of a stream; returns the number of bytes accepted. */
int64_t ctipc_send(const ctipc_socket *s, const void *data, size_t len, const ctipc_address *to, int64_t timeout_ms);
/* Receives a message or stream data. If `message` is NULL, the end of a connection is reported as by recv(2). */
int64_t ctipc_recv(const ctipc_socket *s, void *data, size_t len, ctipc_message *message, int64_t timeout_ms);
/* Like ctipc_recv with a `message`, but leaves the data in the queue, and `message` may be NULL. */
int64_t ctipc_peek(const ctipc_socket *s, void *data, size_t len, ctipc_message *message, int64_t timeout_ms);
/* Shuts the connection down: the peer still reads the data in flight, then the end of the connection. */
int ctipc_shutdown(const ctipc_socket *s);
/* Returns the socket's own address. */
int ctipc_getsockname(const ctipc_socket *s, ctipc_address *out);
/* Returns the address of the connection's other end. */
int ctipc_getpeername(const ctipc_socket *s, ctipc_address *out);
/* Sets an option of level SOL_TIPC. */
int ctipc_setsockopt(const ctipc_socket *s, uint32_t name, uint32_t value);
/* Reads an option of level SOL_TIPC. */
int ctipc_getsockopt(const ctipc_socket *s, uint32_t name, uint32_t *value);
/* Joins a group; `flags` combines CTIPC_LOOPBACK and CTIPC_MEMBER_EVENTS, or is 0. */
int ctipc_join(const ctipc_socket *s, uint32_t group, uint32_t instance, uint32_t scope, uint32_t flags);
/* Leaves the group. */
int ctipc_leave(const ctipc_socket *s);
/* Returns the error of a failed non-blocking connect and clears it (SO_ERROR); 0 if there is none. */
int ctipc_take_error(const ctipc_socket *s);

#ifdef __cplusplus
}
#endif

#endif
