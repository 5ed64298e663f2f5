/* TIPC sockets over the kernel's AF_TIPC or a tipcd. Link with -lcrossway_tipc (pkg-config crossway-tipc).
 *
 * Every call returns 0 or a count of octets, or a negative errno: the one that AF_TIPC has. No call raises SIGPIPE.
 * timeout_ms: negative waits for ever, 0 does not wait (-EAGAIN, -EINPROGRESS).
 *
 * ABI: programs bind to libcrossway_tipc.so.0. The number rises when a structure, a constant or a prototype here changes its meaning;
 * functions and constants may be added without that. What is not named here is not exported.
 *
 * The prototypes follow src/ffi.rs; tests/header.rs holds the two together and, with CROSSWAY_WRITE=1, writes them. */
#ifndef CROSSWAY_TIPC_H
#define CROSSWAY_TIPC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of socket: SOCK_STREAM, SOCK_DGRAM, SOCK_RDM, SOCK_SEQPACKET. */
enum { CTIPC_STREAM = 1, CTIPC_DGRAM = 2, CTIPC_RDM = 4, CTIPC_SEQPACKET = 5 };

/* Forms of address, and scopes of a binding (negative: the binding is taken back). */
enum { CTIPC_SERVICE_RANGE = 1, CTIPC_SERVICE = 2, CTIPC_SOCKET = 3 };
enum { CTIPC_CLUSTER = 2, CTIPC_NODE = 3 };

/* Laid out as struct sockaddr_tipc. family is 30 (AF_TIPC). */
typedef struct ctipc_address {
    uint16_t family;
    uint8_t form;
    int8_t scope;
    uint32_t a; /* service type, or port of a socket */
    uint32_t b; /* lower, or instance, or node of a socket */
    uint32_t c; /* upper, or node that looks the instance up (0: any) */
} ctipc_address;

/* Options of level SOL_TIPC, for ctipc_setsockopt and ctipc_getsockopt (those marked * take no value: give 0). */
enum {
    CTIPC_IMPORTANCE = 127,
    CTIPC_SRC_DROPPABLE = 128,
    CTIPC_DEST_DROPPABLE = 129,
    CTIPC_CONN_TIMEOUT = 130,     /* ms */
    CTIPC_NODE_RECVQ_DEPTH = 131, /* read only */
    CTIPC_SOCK_RECVQ_DEPTH = 132, /* read only */
    CTIPC_MCAST_BROADCAST = 133,  /* * */
    CTIPC_MCAST_REPLICAST = 134,  /* * */
    CTIPC_GROUP_JOIN = 135,       /* read only: the group, 0 without; ctipc_join sets it */
    CTIPC_SOCK_RECVQ_USED = 137,  /* read only */
    CTIPC_NODELAY = 138
};

/* Flags of ctipc_join: own broadcasts come back; members that come and go are told. */
enum { CTIPC_LOOPBACK = 1, CTIPC_MEMBER_EVENTS = 2 };

/* The largest message; a stream's write may be longer. */
enum { CTIPC_MESSAGE_MAX = 66000 };

/* What came: a message, one of ours that came back, the end of the connection, a change of the group. */
enum { CTIPC_DATA = 0, CTIPC_RETURNED = 1, CTIPC_END = 2, CTIPC_MEMBER_UP = 3, CTIPC_MEMBER_DOWN = 4 };

typedef struct ctipc_message {
    ctipc_address from;
    uint32_t event;
    uint32_t error; /* TIPC's code: 1 no name, 2 no port, 3 no node, 4 overload, 5 shut down */
    uint32_t truncated;
    uint32_t has_service; /* the service that was addressed */
    uint32_t service;
    uint32_t lower;
    uint32_t upper;
    uint32_t has_member; /* the sender's instance in the group */
    uint32_t member;
} ctipc_message;

typedef struct ctipc_socket ctipc_socket;

/* path: NULL for the kernel's TIPC where there is one, else the tipcd at the default path; "kernel"; or a tipcd's socket. */
/* PROTOTYPES */
/* Opens a socket. */
int ctipc_open(int kind, const char *path, ctipc_socket **out);
/* Why the last `ctipc_open` of this thread failed; valid until its next. */
const char *ctipc_error(void);
/* Closes a socket. */
void ctipc_close(ctipc_socket *s);
/* The descriptor, to poll. */
int ctipc_fd(const ctipc_socket *s);
/* Binds; a negative scope takes the binding back, NULL takes back all. */
int ctipc_bind(const ctipc_socket *s, const ctipc_address *address);
/* Waits for connections from now on. */
int ctipc_listen(const ctipc_socket *s);
/* Connects. */
int ctipc_connect(const ctipc_socket *s, const ctipc_address *to, int64_t timeout_ms);
/* Takes a connection. */
int ctipc_accept(const ctipc_socket *s, ctipc_socket **out, ctipc_address *from, int64_t timeout_ms);
/* Sends. */
int64_t ctipc_send(const ctipc_socket *s, const void *data, size_t len, const ctipc_address *to, int64_t timeout_ms);
/* Receives; without `message`, ended connections are told as by recv(2). */
int64_t ctipc_recv(const ctipc_socket *s, void *data, size_t len, ctipc_message *message, int64_t timeout_ms);
/* As ctipc_recv with a `message`, which may be NULL here; what was found stays to be received. */
int64_t ctipc_peek(const ctipc_socket *s, void *data, size_t len, ctipc_message *message, int64_t timeout_ms);
/* Ends the connection in good order. */
int ctipc_shutdown(const ctipc_socket *s);
/* The socket's own address. */
int ctipc_getsockname(const ctipc_socket *s, ctipc_address *out);
/* The other end's address. */
int ctipc_getpeername(const ctipc_socket *s, ctipc_address *out);
/* Sets an option of level SOL_TIPC. */
int ctipc_setsockopt(const ctipc_socket *s, uint32_t name, uint32_t value);
/* Reads an option of level SOL_TIPC. */
int ctipc_getsockopt(const ctipc_socket *s, uint32_t name, uint32_t *value);
/* Joins a group. flags: CTIPC_LOOPBACK, CTIPC_MEMBER_EVENTS. */
int ctipc_join(const ctipc_socket *s, uint32_t group, uint32_t instance, uint32_t scope, uint32_t flags);
/* Leaves the group. */
int ctipc_leave(const ctipc_socket *s);
/* How a connect that did not wait has failed, told once (SO_ERROR); 0 when it has not. */
int ctipc_take_error(const ctipc_socket *s);

#ifdef __cplusplus
}
#endif

#endif
