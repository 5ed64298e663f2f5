/* Included before a program: it makes its system calls by syscall(2). */
#ifndef DIRECT_H
#define DIRECT_H

#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define socket(...) (int)syscall(SYS_socket, __VA_ARGS__)
#define socketpair(...) (int)syscall(SYS_socketpair, __VA_ARGS__)
#define bind(...) (int)syscall(SYS_bind, __VA_ARGS__)
#define connect(...) (int)syscall(SYS_connect, __VA_ARGS__)
#define listen(...) (int)syscall(SYS_listen, __VA_ARGS__)
#define accept(...) (int)syscall(SYS_accept, __VA_ARGS__)
#define accept4(...) (int)syscall(SYS_accept4, __VA_ARGS__)
#define getsockname(...) (int)syscall(SYS_getsockname, __VA_ARGS__)
#define getpeername(...) (int)syscall(SYS_getpeername, __VA_ARGS__)
#define shutdown(...) (int)syscall(SYS_shutdown, __VA_ARGS__)
#define setsockopt(...) (int)syscall(SYS_setsockopt, __VA_ARGS__)
#define getsockopt(...) (int)syscall(SYS_getsockopt, __VA_ARGS__)
#define ioctl(...) (int)syscall(SYS_ioctl, __VA_ARGS__)
#define send(...) syscall(SYS_sendto, __VA_ARGS__, 0L, 0L)
#define sendto(...) syscall(SYS_sendto, __VA_ARGS__)
#define sendmsg(...) syscall(SYS_sendmsg, __VA_ARGS__)
#define sendmmsg(...) (int)syscall(SYS_sendmmsg, __VA_ARGS__)
#define write(...) syscall(SYS_write, __VA_ARGS__)
#define writev(...) syscall(SYS_writev, __VA_ARGS__)
#define recv(...) syscall(SYS_recvfrom, __VA_ARGS__, 0L, 0L)
#define recvfrom(...) syscall(SYS_recvfrom, __VA_ARGS__)
#define recvmsg(...) syscall(SYS_recvmsg, __VA_ARGS__)
#define recvmmsg(...) (int)syscall(SYS_recvmmsg, __VA_ARGS__)
#define read(...) syscall(SYS_read, __VA_ARGS__)
#define readv(...) syscall(SYS_readv, __VA_ARGS__)
#define poll(...) (int)syscall(SYS_poll, __VA_ARGS__)
#define ppoll(...) (int)syscall(SYS_ppoll, __VA_ARGS__, 8L)
#define dup(...) (int)syscall(SYS_dup, __VA_ARGS__)
#define dup2(...) (int)syscall(SYS_dup2, __VA_ARGS__)
#define dup3(...) (int)syscall(SYS_dup3, __VA_ARGS__)
#define fcntl(...) (int)syscall(SYS_fcntl, __VA_ARGS__, 0L)
#define close(...) syscall(SYS_close, __VA_ARGS__)
#define close_range(...) (int)syscall(SYS_close_range, __VA_ARGS__)

#endif
