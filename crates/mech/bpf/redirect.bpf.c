// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// Hands the frames of one EtherType that arrive at an interface to the AF_XDP socket in the map, and drops all others.
//
// `scripts/bpf.sh` makes redirect.bpf.o of it; src/mechanisms/af_xdp/ loads that.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))

static long (*const redirect)(void *map, u64 key, u64 otherwise) = (void *)51;

enum { DROP = 1 };

// The program's argument: struct xdp_md.
struct context {
	u32 data;
	u32 data_end;
};

// As in the network: 0x88b5, the first EtherType for experiments.
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define OURS 0xb588
#else
#define OURS 0x88b5
#endif

struct ethernet {
	u8 to[6];
	u8 from[6];
	u16 type;
};

struct {
	int (*type)[17]; // BPF_MAP_TYPE_XSKMAP
	u32 *key;
	u32 *value;
	int (*max_entries)[1];
} SOCKETS SEC(".maps");

SEC("xdp")
int crossway_redirect(struct context *context)
{
	void *end = (void *)(long)context->data_end;
	struct ethernet *frame = (void *)(long)context->data;

	if ((void *)(frame + 1) > end || frame->type != OURS)
		return DROP;
	return redirect(&SOCKETS, 0, DROP);
}

char licence[] SEC("license") = "Dual MIT/GPL";
