/* A library that is loaded before the C library of a program that moves extended CPU state (AVX and beyond) of other processes
 * with ptrace through a buffer that is too small for this CPU, as user-mode Linux 6.1 does.
 *
 * Since Linux 5.16 a CPU with tile registers (AMX) has about 11 KB of state. PTRACE_GETREGSET with a smaller buffer returns the
 * first part of the state, but PTRACE_SETREGSET takes a whole one or fails with EFAULT (xstateregs_set in the kernel's
 * arch/x86/kernel/fpu/regset.c). This ptrace completes what is set: the components that the buffer cannot hold are set to their
 * initial state. Those are the tile registers, which no process has unless it asks its kernel for them.
 *
 * EMULATED_BYTES builds a variant for tests, which behaves as on a CPU with a state of that size.
 */
#include <cpuid.h>
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PEEKTEXT = 1, PEEKUSER = 3, GETREGSET = 0x4204, SETREGSET = 0x4205 };
enum { XSTATE_BV = 512, FIRST_EXTENDED = 2, COMPONENTS = 63, MOST_BYTES = 32768 };

/* The state to be set. Not on the stack, which is small where this library is used; that program has one thread. */
static unsigned char whole[MOST_BYTES] __attribute__((aligned(64)));
static size_t whole_bytes;

static long host(long request, long pid, void *address, void *data)
{
#ifdef EMULATED_BYTES
	if (request == SETREGSET && address == (void *)NT_X86_XSTATE) {
		struct iovec *state = data;
		uint64_t components;
		memcpy(&components, (char *)state->iov_base + XSTATE_BV, sizeof components);
		if (state->iov_len < EMULATED_BYTES || components >> 17 & 3) {
			errno = EFAULT;
			return -1;
		}
	}
	long result = syscall(SYS_ptrace, request, pid, address, data);
	if (request == GETREGSET && address == (void *)NT_X86_XSTATE && result == 0 && data != NULL) {
		struct iovec *state = data;
		if (state->iov_base == whole)
			state->iov_len = EMULATED_BYTES;
	}
	return result;
#else
	return syscall(SYS_ptrace, request, pid, address, data);
#endif
}

/* The components of the state, one bit each, that lie within the first `bytes`. */
static uint64_t components_within(size_t bytes)
{
	uint64_t within = 3; /* x87 and SSE */
	for (unsigned component = FIRST_EXTENDED; component < COMPONENTS; component++) {
		unsigned size, offset, flags, reserved;
		__cpuid_count(0xD, component, size, offset, flags, reserved);
		if (size != 0 && (size_t)offset + size <= bytes)
			within |= (uint64_t)1 << component;
	}
	return within;
}

static long set_state(long pid, void *address, struct iovec *part)
{
	static uint64_t kept;
	static size_t kept_bytes;
	if (whole_bytes == 0) {
		struct iovec all = { whole, sizeof whole };
		if (host(GETREGSET, pid, address, &all) != 0)
			return -1;
		whole_bytes = all.iov_len;
	}
	if (part->iov_len >= whole_bytes || part->iov_len < XSTATE_BV + sizeof kept)
		return host(SETREGSET, pid, address, part);
	if (kept_bytes != part->iov_len) {
		kept = components_within(part->iov_len);
		kept_bytes = part->iov_len;
	}
	uint64_t components;
	memcpy(whole, part->iov_base, part->iov_len);
	memset(whole + part->iov_len, 0, whole_bytes - part->iov_len);
	memcpy(&components, whole + XSTATE_BV, sizeof components);
	components &= kept;
	memcpy(whole + XSTATE_BV, &components, sizeof components);
	struct iovec all = { whole, whole_bytes };
	return host(SETREGSET, pid, address, &all);
}

long ptrace(long request, ...)
{
	va_list arguments;
	va_start(arguments, request);
	long pid = va_arg(arguments, long);
	void *address = va_arg(arguments, void *);
	void *data = va_arg(arguments, void *);
	va_end(arguments);
	/* `request` is an enum and `pid` an int for callers: the upper halves may hold anything. */
	request = (int)request;
	pid = (int)pid;
	if (request >= PEEKTEXT && request <= PEEKUSER) {
		/* The system call stores what the C library's function returns. */
		long word = 0;
		long result = host(request, pid, address, &word);
		if (result == 0) {
			errno = 0;
			return word;
		}
		return result;
	}
	if (request == SETREGSET && address == (void *)NT_X86_XSTATE && data != NULL)
		return set_state(pid, address, data);
	return host(request, pid, address, data);
}
