// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// The part of the eBPF recorder that runs in the kernel: which calls of the observed threads moved how many bytes
// through which object, and how long they took. It reads no contents of messages.
//
// `scripts/bpf.sh` makes recorder.bpf.o of it; src/ebpf/ loads that and reads the records. Field offsets are those of
// the machine on which clang ran only until the loader adapts them to the running kernel (CO-RE).

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define ADAPTED __attribute__((preserve_access_index))
#define EXISTS(field) __builtin_preserve_field_info(field, 2)
#define OFFSET(field) __builtin_preserve_field_info(field, 0)

// The kernel's helpers, by their numbers in include/uapi/linux/bpf.h.
static void *(*const lookup)(void *map, const void *key) = (void *)1;
static long (*const update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const erase)(void *map, const void *key) = (void *)3;
static u64 (*const now_ns)(void) = (void *)5;
static u32 (*const this_cpu)(void) = (void *)8;
static long (*const read_user)(void *to, u32 size, const void *from) = (void *)112;
static long (*const read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static void *(*const reserve)(void *ring, u64 size, u64 flags) = (void *)131;
static void (*const submit)(void *record, u64 flags) = (void *)132;
static struct task_struct *(*const this_task)(void) = (void *)158;

// Nobody is woken for a record: the recorder looks regularly.
#define NO_WAKEUP 1

// The fields of the kernel's structures that are needed.
struct super_block {
	unsigned long s_magic;
} ADAPTED;
struct inode {
	u16 i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
} ADAPTED;
struct file {
	struct inode *f_inode;
	void *private_data;
} ADAPTED;
struct fdtable {
	u32 max_fds;
	struct file **fd;
} ADAPTED;
struct files_struct {
	struct fdtable *fdt;
} ADAPTED;
struct thread_info {
	u32 status;
} ADAPTED;
struct task_struct {
	struct thread_info thread_info;
	int pid;
	int tgid;
	struct files_struct *files;
	char comm[16];
} ADAPTED;
struct ns_common {
	u32 inum;
} ADAPTED;
struct net {
	struct ns_common ns;
} ADAPTED;
typedef struct {
	struct net *net;
} ADAPTED possible_net_t;
struct in6_addr {
	u8 bytes[16];
};
struct sock_common {
	u32 skc_daddr;
	u32 skc_rcv_saddr;
	u16 skc_dport;
	u16 skc_num;
	u16 skc_family;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
} ADAPTED;
struct socket;
struct sock {
	struct sock_common __sk_common;
	u16 sk_type;
	u16 sk_protocol;
	struct socket *sk_socket;
} ADAPTED;
struct socket {
	struct sock *sk;
} ADAPTED;
struct socket_alloc {
	struct socket socket;
	struct inode vfs_inode;
} ADAPTED;
struct unix_address {
	int len;
} ADAPTED;
// Before Linux 5.17.
struct unix_address___hashed {
	u32 hash;
} ADAPTED;
struct unix_sock {
	struct unix_address *addr;
	struct sock *peer;
} ADAPTED;
struct pt_regs___x86 {
	unsigned long di, si, dx, r10, r8;
} ADAPTED;
struct pt_regs___arm64 {
	u64 regs[31];
} ADAPTED;

#define READ(to, from) read_kernel(&(to), sizeof(to), &(from))

// What a call does, by its number: src/ebpf/calls.rs fills the table.
enum kind {
	IGNORED,
	SEND,          // descriptor in argument 0; returns the size
	RECEIVE,       // the same
	SEND_MANY,     // sendmmsg
	RECEIVE_MANY,  // recvmmsg
	SENDFILE,      // to argument 0, from argument 1
	SPLICE,        // from argument 0, to argument 2
	QUEUE_SEND,    // mq_timedsend: size in argument 2
	SYSV_SEND,     // msgsnd: queue in argument 0, size in argument 2
	SYSV_RECEIVE,  // msgrcv: returns the size
	WAIT,
	FUTEX,         // a wait, or not, by argument 1
	SEND_TO,       // as SEND; an address may be in argument 4
	RECEIVE_FROM,  // as RECEIVE; an address may be in argument 4
	SEND_MESSAGE,  // as SEND; argument 1 is a msghdr
	RECEIVE_MESSAGE,
};

// Types of records; src/ebpf/records.rs has the same.
enum record {
	CALL = 1,
	CALL_WITH_ADDRESS,
	OBJECT,
	STARTED,
	NAMED,
	ENDED,
};

enum operation { OP_SEND, OP_RECEIVE, OP_WAIT };

// Classes of objects, in the highest byte of an object's number.
#define PIPE (1ULL << 56)
#define SOCKET (2ULL << 56)
#define QUEUE (3ULL << 56)
#define SYSV (4ULL << 56)

#define S_IFMT 0170000
#define S_IFIFO 0010000
#define S_IFSOCK 0140000
#define S_IFREG 0100000
#define MQUEUE_MAGIC 0x19800202
#define PIPEFS_MAGIC 0x50495045

struct address {
	u16 family;
	u8 rest[26];  // sockaddr_in and the beginning of sockaddr_in6
};

struct call {
	u8 record, operation;
	u16 cpu;
	u32 thread;
	u64 began_ns, took_ns, object, size, off_cpu_ns;
};

struct call_with_address {
	struct call call;
	struct address address;
	u32 unused;
};

struct object {
	u8 record, named;
	u16 family;
	u32 thread;
	u64 object, peer;
	u32 descriptor, namespace;
	u16 type, protocol, local_port, remote_port;
	u8 local[16], remote[16];
	u32 path_length;
	u8 path[108];
};

struct started {
	u8 record, same_process;
	u16 unused;
	u32 thread, child, unused2;
};

struct named {
	u8 record;
	u8 unused[3];
	u32 thread;
	char name[16];
};

struct ended {
	u8 record;
	u8 unused[3];
	u32 thread;
	u64 cpu_ns;
};

#define SEEN 4

// An observed thread, and the call that it is in.
struct thread {
	u64 began_ns;
	u32 kind;
	u32 first;  // argument 0, which the result replaces on some processors
	u64 seen[SEEN];
	u64 left_ns;     // when it left its CPU within the call; 0: it has a CPU
	u64 off_cpu_ns;  // how long it had no CPU within the call before that
	u64 on_ns;       // when it got its CPU, or was first observed
	u64 cpu_ns;      // its CPU time before that
};

#define MAP(name, kind_, entries, key_, value_)                                                    \
	struct {                                                                                   \
		int(*type)[kind_];                                                                 \
		int(*max_entries)[entries];                                                        \
		key_ *key;                                                                         \
		value_ *value;                                                                     \
	} name SEC(".maps")

MAP(threads, 1, 16384, u32, struct thread);
// Whether any observed thread's number ends in these bits: most threads are known to be none without a search. Never reset.
#define ENDINGS 65536
MAP(endings, 2, ENDINGS, u32, u32);
MAP(calls, 2, 512, u32, u32);
// The objects that were described; 2: a datagram socket whose messages have addresses of their own.
MAP(objects, 9, 16384, u64, u32);
MAP(counters, 6, 4, u32, u64);

struct {
	int(*type)[27];
	int(*max_entries)[1 << 24];
} ring SEC(".maps");

enum counter { OVERRUN, NOT_A_CHANNEL, NOT_FOLLOWED };

INLINE void count_all(u32 which, u64 number)
{
	u64 *counter = lookup(&counters, &which);
	if (counter)
		__sync_fetch_and_add(counter, number);
}

INLINE void count(u32 which)
{
	count_all(which, 1);
}

INLINE struct thread *observed(u32 tid)
{
	u32 ending = tid & (ENDINGS - 1);
	u32 *any = lookup(&endings, &ending);
	return any && *any ? lookup(&threads, &tid) : 0;
}

INLINE void set_ending(u32 tid)
{
	u32 ending = tid & (ENDINGS - 1), yes = 1;
	update(&endings, &ending, &yes, 0);
}

INLINE u64 argument(const void *regs, int number)
{
	const struct pt_regs___x86 *x86 = regs;
	const struct pt_regs___arm64 *arm64 = regs;
	if (EXISTS(x86->di)) {
		switch (number) {
		case 0: return x86->di;
		case 1: return x86->si;
		case 2: return x86->dx;
		default: return x86->r8;
		}
	}
	switch (number) {
	case 0: return arm64->regs[0];
	case 1: return arm64->regs[1];
	case 2: return arm64->regs[2];
	default: return arm64->regs[4];
	}
}

// Whether a 32-bit program called on x86, where numbers mean other calls.
INLINE int is_compat(const struct task_struct *task)
{
	return EXISTS(task->thread_info.status) && task->thread_info.status & 2;
}

SEC("tp_btf/sys_enter")
int crossway_enter(u64 *ctx)
{
	u32 number = ctx[1];
	u32 *kind = lookup(&calls, &number);
	if (!kind || !*kind)
		return 0;
	const struct task_struct *task = this_task();
	struct thread *thread = observed(task->pid);
	if (!thread || is_compat(task))
		return 0;
	const void *regs = (const void *)ctx[0];
	if (*kind == FUTEX) {
		// FUTEX_WAIT, _LOCK_PI, _WAIT_BITSET, _WAIT_REQUEUE_PI, _LOCK_PI2; without FUTEX_PRIVATE_FLAG and
		// FUTEX_CLOCK_REALTIME.
		u32 operation = argument(regs, 1) & 127;
		if (operation > 13 || !((1 << operation) & (1 << 0 | 1 << 6 | 1 << 9 | 1 << 11 | 1 << 13)))
			return 0;
	}
	thread->first = argument(regs, 0);
	thread->kind = *kind;
	thread->left_ns = 0;
	thread->off_cpu_ns = 0;
	thread->began_ns = now_ns();
	return 0;
}

// The begin and the end of the time in which an observed thread has a CPU.
SEC("tp_btf/sched_switch")
int crossway_switch(u64 *ctx)
{
	const struct task_struct *before = (const void *)ctx[1];
	const struct task_struct *after = (const void *)ctx[2];
	u32 id = before->pid;
	struct thread *thread;
	u64 now = 0;
	// Number 0 is the idle loop.
	if (id && (thread = observed(id))) {
		now = now_ns();
		thread->cpu_ns += now - thread->on_ns;
		if (thread->kind)
			thread->left_ns = now;
	}
	id = after->pid;
	if (id && (thread = observed(id))) {
		if (!now)
			now = now_ns();
		thread->on_ns = now;
		if (thread->left_ns) {
			thread->off_cpu_ns += now - thread->left_ns;
			thread->left_ns = 0;
		}
	}
	return 0;
}

// Bytes at the begin of an inode that have the fields which are needed.
#define INODE 128

// The number of the object behind a descriptor of this process; 0: no channel.
INLINE u64 object_of(u32 descriptor, struct file **found, int queue)
{
	struct fdtable *table = this_task()->files->fdt;
	if (descriptor >= table->max_fds)
		return 0;
	struct file *file = 0;
	struct inode *inode = 0;
	read_kernel(&file, sizeof(file), table->fd + descriptor);
	if (!file)
		return 0;
	READ(inode, file->f_inode);
	// All fields by one call: a call costs more than what it reads.
	u8 fields[INODE];
	if (OFFSET(inode->i_ino) > INODE - sizeof(u64) || OFFSET(inode->i_sb) > INODE - sizeof(u64) ||
	    OFFSET(inode->i_mode) > INODE - sizeof(u16) || read_kernel(fields, INODE, inode))
		return 0;
	u16 mode = *(u16 *)(fields + OFFSET(inode->i_mode)) & S_IFMT;
	u64 number = *(u64 *)(fields + OFFSET(inode->i_ino));
	*found = file;
	if (mode == S_IFSOCK)
		return SOCKET | (number & 0xffffffffff);
	if (mode != S_IFIFO && !(queue && mode == S_IFREG))
		return 0;
	struct super_block *super = *(struct super_block **)(fields + OFFSET(inode->i_sb));
	// Different file systems use the same numbers.
	number = (number & 0xffffffffff) | ((u64)super >> 6 & 0xffff) << 40;
	if (mode == S_IFIFO)
		return PIPE | number;
	unsigned long magic = 0;
	READ(magic, super->s_magic);
	return magic == MQUEUE_MAGIC ? QUEUE | number : 0;
}

INLINE u64 socket_number(struct socket *socket)
{
	unsigned long number = 0;
	if (!socket)
		return 0;
	READ(number, ((struct socket_alloc *)socket)->vfs_inode.i_ino);
	return SOCKET | (number & 0xffffffffff);
}

INLINE void describe_unix(struct object *record, struct sock *sock)
{
	struct unix_sock *own = (struct unix_sock *)sock;
	struct sock *peer = 0;
	struct unix_address *address = 0;
	struct socket *socket = 0;
	READ(peer, own->peer);
	READ(address, own->addr);
	if (peer) {
		READ(socket, peer->sk_socket);
		record->peer = socket_number(socket);
		if (!address)
			READ(address, ((struct unix_sock *)peer)->addr);
	}
	if (!address)
		return;
	int length = 0;
	READ(length, address->len);
	// The family comes first.
	length -= 2;
	if (length <= 0 || length > (int)sizeof(record->path))
		return;
	// The address follows, beginning with the family. It is an array without a size, which the loader cannot adapt.
	const u8 *name = (const u8 *)&address->len + sizeof(length) + 2;
	if (EXISTS(((struct unix_address___hashed *)address)->hash))
		name += sizeof(u32);
	if (!read_kernel(record->path, sizeof(record->path), name))
		record->path_length = length;
}

INLINE void describe_inet(struct object *record, struct sock *sock)
{
	struct sock_common *common = &sock->__sk_common;
	struct net *net = 0;
	READ(record->local_port, common->skc_num);
	READ(record->remote_port, common->skc_dport);
	READ(net, common->skc_net.net);
	if (net)
		READ(record->namespace, net->ns.inum);
	if (record->family == 10) {
		READ(record->local, common->skc_v6_rcv_saddr);
		READ(record->remote, common->skc_v6_daddr);
	} else {
		u32 local = 0, remote = 0;
		READ(local, common->skc_rcv_saddr);
		READ(remote, common->skc_daddr);
		*(u32 *)record->local = local;
		*(u32 *)record->remote = remote;
	}
}

// Says once what an object is. Returns 0 if that is impossible now, otherwise what `objects` keeps.
INLINE u32 describe(u64 object, u32 tid, u32 descriptor, struct file *file)
{
	u32 kept = 1;
	struct object *record = reserve(&ring, sizeof(*record), 0);
	if (!record)
		return 0;
	__builtin_memset(record, 0, sizeof(*record));
	record->record = OBJECT;
	record->thread = tid;
	record->object = object;
	record->descriptor = descriptor;
	if ((object & SOCKET) && !(object & PIPE)) {
		struct socket *socket = 0;
		struct sock *sock = 0;
		READ(socket, file->private_data);
		READ(sock, socket->sk);
		if (sock) {
			READ(record->family, sock->__sk_common.skc_family);
			READ(record->type, sock->sk_type);
			READ(record->protocol, sock->sk_protocol);
			if (record->family == 1) {
				describe_unix(record, sock);
			} else if (record->family == 2 || record->family == 10) {
				describe_inet(record, sock);
				if (record->type == 2 && !record->remote_port)
					kept = 2;
			}
		}
	} else if (file) {
		struct inode *inode = 0;
		struct super_block *super = 0;
		unsigned long magic = 0;
		READ(inode, file->f_inode);
		READ(super, inode->i_sb);
		READ(magic, super->s_magic);
		record->named = magic != PIPEFS_MAGIC;
	}
	submit(record, NO_WAKEUP);
	update(&objects, &object, &kept, 0);
	return kept;
}

struct done {
	u64 took_ns, off_cpu_ns, size, address;
	u32 tid, descriptor;
	u8 operation;
};

// Writes the record of a call.
static __attribute__((noinline)) int emit(struct thread *thread, const struct done *done, u64 object, struct file *file)
{
	if (!thread || !done)
		return 0;
	u64 *cached = &thread->seen[object & (SEEN - 1)];
	u32 kept = 1;
	if (object && *cached != object) {
		u32 *known = lookup(&objects, &object);
		kept = known ? *known : describe(object, done->tid, done->descriptor, file);
		if (!kept) {
			count(OVERRUN);
			return 0;
		}
		if (kept == 1)
			*cached = object;
	}
	struct call *call;
	struct call_with_address *addressed = 0;
	if (kept == 2 && done->address) {
		addressed = reserve(&ring, sizeof(*addressed), 0);
		call = &addressed->call;
	} else {
		call = reserve(&ring, sizeof(*call), 0);
	}
	if (!call) {
		count(OVERRUN);
		return 0;
	}
	call->record = addressed ? CALL_WITH_ADDRESS : CALL;
	call->operation = done->operation;
	call->cpu = this_cpu();
	call->thread = done->tid;
	call->began_ns = thread->began_ns;
	call->took_ns = done->took_ns;
	call->object = object;
	call->size = done->size;
	call->off_cpu_ns = done->off_cpu_ns;
	if (addressed) {
		__builtin_memset(&addressed->address, 0, sizeof(addressed->address));
		read_user(&addressed->address, sizeof(addressed->address), (void *)done->address);
		submit(addressed, NO_WAKEUP);
	} else {
		submit(call, NO_WAKEUP);
	}
	return 0;
}

INLINE u64 name_in_message(u64 header)
{
	u64 address = 0;
	read_user(&address, sizeof(address), (void *)header);
	return address;
}

#define MESSAGES 64
#define MMSGHDR 64
#define MSGHDR 56

// sendmmsg and recvmmsg: a record for each message. The call's time counts once.
static __attribute__((noinline)) int many(struct thread *thread, struct done *done, u64 messages, u64 number)
{
	struct file *file = 0;
	if (!thread || !done)
		return 0;
	u64 object = object_of(done->descriptor, &file, 0);
	if (!object) {
		count(NOT_A_CHANNEL);
		return 0;
	}
#pragma clang loop unroll(disable)
	for (u32 at = 0; at < MESSAGES; at++) {
		if (at >= number)
			break;
		u32 length = 0;
		read_user(&length, sizeof(length), (void *)(messages + at * MMSGHDR + MSGHDR));
		done->size = length;
		done->address = name_in_message(messages + at * MMSGHDR);
		emit(thread, done, object, file);
		// All of them are there when it returns.
		thread->began_ns += done->took_ns;
		done->took_ns = 0;
		done->off_cpu_ns = 0;
	}
	if (number > MESSAGES)
		count_all(OVERRUN, number - MESSAGES);
	return 0;
}

INLINE void moved(struct thread *thread, struct done *done, u32 descriptor, u8 operation, int queue)
{
	struct file *file = 0;
	u64 object = object_of(descriptor, &file, queue);
	if (!object) {
		count(NOT_A_CHANNEL);
		return;
	}
	done->descriptor = descriptor;
	done->operation = operation;
	emit(thread, done, object, file);
}

SEC("tp_btf/sys_exit")
int crossway_exit(u64 *ctx)
{
	u32 tid = this_task()->pid;
	struct thread *thread = observed(tid);
	if (!thread || !thread->kind)
		return 0;
	u32 kind = thread->kind;
	u32 first = thread->first;
	s64 result = ctx[1];
	const void *regs = (const void *)ctx[0];
	thread->kind = 0;
	if (result < 0 && kind != WAIT && kind != FUTEX)
		return 0;
	struct done done = {
		.took_ns = now_ns() - thread->began_ns,
		.off_cpu_ns = thread->off_cpu_ns,
		.size = result,
		.tid = tid,
	};
	u8 operation = OP_SEND;
	switch (kind) {
	case WAIT:
	case FUTEX:
		done.operation = OP_WAIT;
		done.size = 0;
		emit(thread, &done, 0, 0);
		return 0;
	case SYSV_SEND:
	case SYSV_RECEIVE:
		done.operation = kind == SYSV_SEND ? OP_SEND : OP_RECEIVE;
		if (kind == SYSV_SEND)
			done.size = argument(regs, 2);
		emit(thread, &done, SYSV | first, 0);
		return 0;
	case SEND_MANY:
	case RECEIVE_MANY:
		done.descriptor = first;
		done.operation = kind == SEND_MANY ? OP_SEND : OP_RECEIVE;
		many(thread, &done, argument(regs, 1), result);
		return 0;
	case QUEUE_SEND:
		done.size = argument(regs, 2);
		moved(thread, &done, first, OP_SEND, 1);
		return 0;
	case SENDFILE:
	case SPLICE: {
		u32 other = kind == SENDFILE ? argument(regs, 1) : argument(regs, 2);
		if (!result)
			return 0;
		// First from where the bytes came.
		moved(thread, &done, kind == SENDFILE ? other : first, OP_RECEIVE, 0);
		moved(thread, &done, kind == SENDFILE ? first : other, OP_SEND, 0);
		return 0;
	}
	case RECEIVE:
	case RECEIVE_FROM:
	case RECEIVE_MESSAGE:
		// The end of a stream. An empty datagram looks the same.
		if (!result)
			return 0;
		operation = OP_RECEIVE;
		break;
	}
	if (kind == SEND_TO || kind == RECEIVE_FROM)
		done.address = argument(regs, 4);
	else if (kind == SEND_MESSAGE || kind == RECEIVE_MESSAGE)
		done.address = name_in_message(argument(regs, 1));
	moved(thread, &done, first, operation, 1);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int crossway_fork(u64 *ctx)
{
	const struct task_struct *parent = (const void *)ctx[0];
	const struct task_struct *child = (const void *)ctx[1];
	u32 parent_id = parent->pid, child_id = child->pid;
	if (!observed(parent_id))
		return 0;
	struct thread fresh = {};
	set_ending(child_id);
	if (update(&threads, &child_id, &fresh, 0)) {
		count(NOT_FOLLOWED);
		return 0;
	}
	struct started *record = reserve(&ring, sizeof(*record), 0);
	if (!record) {
		count(OVERRUN);
		return 0;
	}
	record->record = STARTED;
	record->same_process = parent->tgid == child->tgid;
	record->unused = 0;
	record->thread = parent_id;
	record->child = child_id;
	record->unused2 = 0;
	submit(record, NO_WAKEUP);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int crossway_exec(u64 *ctx)
{
	const struct task_struct *task = (const void *)ctx[0];
	u32 before = ctx[1], id = task->pid;
	struct thread *thread = observed(before);
	if (!thread)
		return 0;
	// A thread that is not the first one takes the first one's number.
	if (before != id) {
		struct thread same = *thread;
		erase(&threads, &before);
		set_ending(id);
		if (update(&threads, &id, &same, 0))
			count(NOT_FOLLOWED);
	}
	struct named *record = reserve(&ring, sizeof(*record), 0);
	if (!record) {
		count(OVERRUN);
		return 0;
	}
	__builtin_memset(record, 0, sizeof(*record));
	record->record = NAMED;
	record->thread = id;
	READ(record->name, task->comm);
	submit(record, NO_WAKEUP);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int crossway_end(u64 *ctx)
{
	const struct task_struct *task = (const void *)ctx[0];
	u32 id = task->pid;
	struct thread *thread = observed(id);
	if (!thread)
		return 0;
	struct ended *record = reserve(&ring, sizeof(*record), 0);
	if (record) {
		__builtin_memset(record, 0, sizeof(*record));
		record->record = ENDED;
		record->thread = id;
		record->cpu_ns = thread->cpu_ns + (now_ns() - thread->on_ns);
		submit(record, NO_WAKEUP);
	} else {
		count(OVERRUN);
	}
	erase(&threads, &id);
	return 0;
}

// MIT; the kernel only knows this name for it, and lets no other licence use its tracing helpers.
char LICENSE[] SEC("license") = "Dual MIT/GPL";
