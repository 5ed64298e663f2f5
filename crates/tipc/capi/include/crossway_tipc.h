/* TIPC sockets over the kernel's AF_TIPC or a tipcd. Link with -lcrossway_tipc (pkg-config crossway-tipc).
 *
 * Every call returns 0 or a count of octets, or a negative errno: the one that AF_TIPC has. No call raises SIGPIPE.
 * timeout_ms: negative waits for ever, 0 does not wait (-EAGAIN, -EINPROGRESS).
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

#ifdef __cplusplus
}
#endif

#endif
