/* LINX messaging over a Crossway node: the calls of liblinx 2.6, for programs written for it. Link with
 * -lcrossway_linx.
 *
 * The node is the one in $CROSSWAY_LINX_DIR, or in crossway-linx in $XDG_RUNTIME_DIR or in /run: crossway linx node.
 *
 * Calls that return int return -1 and set errno on failure. Calls that send or free a signal, or keep it for a later
 * answer (such as linx_attach), take ownership of it, even if they fail, and set its pointer to LINX_NIL. The program
 * is aborted with a message if it passes a signal that belongs to another endpoint, or one that was written beyond its
 * end. Sending waits while the receiver's queue is full.
 *
 * ABI: programs bind to libcrossway_linx.so.0. The number changes when a structure, a constant or a prototype here
 * changes its meaning. */
#ifndef LINX_H
#define LINX_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct LINX LINX;
/* Each program defines its signals; every one begins with a LINX_SIGSELECT. */
union LINX_SIGNAL;

typedef uint32_t LINX_SPID;
typedef uint32_t LINX_SIGSELECT;
typedef uint32_t LINX_OSBUFSIZE;
typedef uint32_t LINX_OSTIME; /* ms */
typedef uint32_t LINX_OSATTREF;
typedef uint32_t LINX_OSTMOREF;
typedef uint32_t LINX_NLREF;
typedef uint32_t LINX_NLTOKEN;

#define LINX_NIL ((void *)0)
#define LINX_ILLEGAL_SPID ((LINX_SPID)0)
#define LINX_ILLEGAL_ATTREF ((LINX_OSATTREF)0)
#define LINX_ILLEGAL_TMOREF ((LINX_OSTMOREF)0)
#define LINX_ILLEGAL_NLREF ((LINX_NLREF)0)

/* Numbers of signals that the system sends. Programs use 0x10000000 and above for their own. */
#define LINX_OS_NEW_LINK_SIG ((LINX_SIGSELECT)248)
#define LINX_OS_TMO_SIG ((LINX_SIGSELECT)249)
#define LINX_OS_LINK_SIG ((LINX_SIGSELECT)250)
#define LINX_OS_HUNT_SIG ((LINX_SIGSELECT)251)
#define LINX_OS_ATTACH_SIG ((LINX_SIGSELECT)252)

/* A filter is a count, followed by that many signal numbers. A count of 0 accepts all signals; a negative count accepts
 * all but those that follow. NULL accepts all signals, too. */
static const LINX_SIGSELECT LINX_NO_SIG_SEL[] = {0};
static const LINX_SIGSELECT LINX_OS_HUNT_SIG_SEL[] = {1, 251};
static const LINX_SIGSELECT LINX_OS_ATTACH_SIG_SEL[] = {1, 252};

/* A list of options consists of pairs of a tag and a value, and ends with LINX_SIG_OPT_END. */
#define LINX_SIG_OPT_END 0
#define LINX_SIG_OPT_OOB 1
/* Attributes of a signal. */
#define LINX_SIG_ATTR_OOB 1

/* Opens an endpoint. options and arg are not used: pass 0 and NULL. */
LINX *linx_open(const char *name, uint32_t options, void *arg);
int linx_close(LINX *linx);
/* Returns a descriptor for polling; do not close it or read from it. */
int linx_get_descriptor(LINX *linx);

union LINX_SIGNAL *linx_alloc(LINX *linx, LINX_OSBUFSIZE size, LINX_SIGSELECT sig_no);
/*
 * Like linx_alloc, but allocates the signal in memory shared with the endpoint that this one communicated with last.
 * That requires the node's transport "shm" and an endpoint of the same user. The signal is not copied when it is sent
 * to that endpoint or back. Without such memory, or without room in it, the call allocates an ordinary signal; a shared
 * signal that is sent to another endpoint is copied. Its content is not set to zero, and the other program can still
 * change it after sending or freeing it. Pass 0 as flags.
 */
union LINX_SIGNAL *linx_s_alloc(LINX *linx, LINX_OSBUFSIZE size, LINX_SIGSELECT sig_no, uint32_t flags);
int linx_free_buf(LINX *linx, union LINX_SIGNAL **sig);
LINX_SPID linx_sender(LINX *linx, union LINX_SIGNAL **sig);
/* Returns the size in bytes; 0 or -1 on error. */
LINX_OSBUFSIZE linx_sigsize(LINX *linx, union LINX_SIGNAL **sig);
/* Changes the size of a signal; EMSGSIZE below 4 bytes. A signal that becomes larger than it was allocated moves: *sig
 * changes, its content is kept, and the bytes after it are 0. */
int linx_set_sigsize(LINX *linx, union LINX_SIGNAL **sig, LINX_OSBUFSIZE sigsize);
/* Writes one byte to value, which may be a variable of any type: not ~0 if the signal was sent out of band, otherwise
 * ~0. Fails with EINVAL for other attributes. */
int linx_sigattr(const LINX *linx, const union LINX_SIGNAL **sig, uint32_t attr, void **value);

int linx_send(LINX *linx, union LINX_SIGNAL **sig, LINX_SPID to);
int linx_send_w_s(LINX *linx, union LINX_SIGNAL **sig, LINX_SPID from, LINX_SPID to);
int linx_send_w_opt(LINX *linx, union LINX_SIGNAL **sig, LINX_SPID from, LINX_SPID to, int32_t *taglist);

/* Returns the size of the received signal. */
int linx_receive(LINX *linx, union LINX_SIGNAL **sig, const LINX_SIGSELECT *sig_sel);
/* Returns 0 and sets *sig to LINX_NIL if no signal arrived in time. */
int linx_receive_w_tmo(LINX *linx, union LINX_SIGNAL **sig, LINX_OSTIME tmo, const LINX_SIGSELECT *sig_sel);
int linx_receive_from(LINX *linx, union LINX_SIGNAL **sig, LINX_OSTIME tmo, const LINX_SIGSELECT *sig_sel, LINX_SPID from);

int linx_hunt(LINX *linx, const char *hunt_path, union LINX_SIGNAL **hunt_sig);
int linx_hunt_from(LINX *linx, const char *hunt_path, union LINX_SIGNAL **hunt_sig, LINX_SPID from);

LINX_OSATTREF linx_attach(LINX *linx, union LINX_SIGNAL **sig, LINX_SPID spid);
int linx_detach(LINX *linx, LINX_OSATTREF *attref);

LINX_OSTMOREF linx_request_tmo(LINX *linx, LINX_OSTIME tmo, union LINX_SIGNAL **sig);
int linx_modify_tmo(LINX *linx, LINX_OSTMOREF *tmoref, LINX_OSTIME tmo);
int linx_cancel_tmo(LINX *linx, LINX_OSTMOREF *tmoref);

/* Requests a signal for the next new link. Its payload is the token for the next request (32 bits), followed by the
 * link's name with a NUL byte at its end. */
LINX_NLREF linx_request_new_link(LINX *linx, LINX_NLTOKEN token);
int linx_cancel_new_link(LINX *linx, LINX_NLREF *nlref);

LINX_SPID linx_get_spid(LINX *linx);
/* Sets *name to the endpoint's name, with the path of links to it; free it with linx_free_name. */
int linx_get_name(LINX *linx, LINX_SPID spid, char **name);
int linx_free_name(LINX *linx, char **name);
/* Returns the id of the endpoint's process, 0 for an endpoint on another host, -1 with errno if there is no such
 * endpoint. */
pid_t linx_get_owner(LINX *linx, LINX_SPID spid);
/* The signals that an endpoint has sent, received and queued; sizes include the signals' numbers. "Local" refers to
 * endpoints of the same node, "remote" to those of other nodes. The answers to its own hunts, attaches and time-outs
 * count as local. */
struct linx_info_stat {
    LINX_SPID spid;
    uint64_t no_sent_local_signals;
    uint64_t no_recv_local_signals;
    uint64_t no_sent_local_bytes;
    uint64_t no_recv_local_bytes;
    uint64_t no_sent_remote_signals;
    uint64_t no_recv_remote_signals;
    uint64_t no_sent_remote_bytes;
    uint64_t no_recv_remote_bytes;
    uint64_t no_sent_signals;
    uint64_t no_recv_signals;
    uint64_t no_sent_bytes;
    uint64_t no_recv_bytes;
    uint64_t no_queued_bytes;
    uint64_t no_queued_signals;
};
/* Sets *stat to the statistics of an endpoint of this node; free them with linx_free_stat. The endpoint itself reports
 * them. Fails with ETIMEDOUT if its program neither waits in a receive nor makes another call within 100 ms, with
 * EOPNOTSUPP for links and for endpoints of other nodes, and with ECONNRESET for an endpoint that has ended. */
int linx_get_stat(LINX *linx, LINX_SPID spid, struct linx_info_stat **stat);
int linx_free_stat(LINX *linx, struct linx_info_stat **stat);
/* Writes the version and a NUL byte, 14 bytes at most; returns the version's length. With NULL it only returns the
 * length. */
int linx_get_version(char *buf);

#ifdef __cplusplus
}
#endif

#endif
