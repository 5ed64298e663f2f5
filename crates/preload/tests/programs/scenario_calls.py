"""Scenarios of what calls refuse, of flags and addresses, and of the events that a reset shows."""

import ctypes
import errno
import os
import select
import signal
import socket
import struct
import time

from scenario_ends import reset
from scenario_kit import attempt, LIBC, Message, messages, scenario

FASTOPEN = 0x20000000
ALL_EVENTS = select.POLLIN | select.POLLOUT | select.POLLRDHUP | select.POLLPRI


def error(call, *args):
    """What a function of the C library returns, and its error."""
    ctypes.set_errno(0)
    outcome = getattr(LIBC, call)(*args)
    return outcome, errno.errorcode.get(ctypes.get_errno()) if outcome < 0 else None


def survives(call, *args):
    """The same in a child process, which a bad pointer may end."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, repr(error(call, *args)).encode())
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    os.close(write)
    said = os.read(read, 1000)
    os.close(read)
    return said if status == 0 else f"{call}: {signal.Signals(status & 127).name}"


class Unreadable:
    """A page of memory that nobody may touch, after one that everybody may."""

    def __init__(self):
        LIBC.mmap.restype = ctypes.c_void_p
        self.at = LIBC.mmap(None, ctypes.c_size_t(8192), 3, 0x22, -1, ctypes.c_long(0))
        LIBC.mprotect(ctypes.c_void_p(self.at + 4096), ctypes.c_size_t(4096), 0)

    def ends_after(self, readable):
        """A pointer to so many bytes that may be read."""
        return ctypes.c_void_p(self.at + 4096 - readable)


@scenario
def calls_refuse_bad_pointers(listener, conn, peer, end, steps):
    """A call refuses what it cannot read or write (EFAULT), and does not end the program."""
    if not end:
        conn.sendall(b"0123456789" * 10)
        steps.wait(end)
        return
    conn.recv(1, socket.MSG_PEEK)
    fd, bad, partly = conn.fileno(), ctypes.c_void_p(16), Unreadable().ends_after(8)
    # The kernel reads no more of a set for select than its table of descriptors has: 64, unless a higher one was open.
    os.dup2(0, 200)
    fresh = socket.socket()
    room = ctypes.create_string_buffer(128)
    size = ctypes.c_size_t(5)
    for pointer in (bad, partly, None):
        for at in (fd, fresh.fileno()):
            yield "connect", survives("connect", at, pointer, 16), survives("bind", at, pointer, 16)
            yield survives("getsockname", at, pointer, ctypes.byref(ctypes.c_int(16)))
            yield survives("getsockname", at, room, pointer), survives("getpeername", at, room, pointer)
        yield "name", survives("getpeername", fd, pointer, ctypes.byref(ctypes.c_int(16)))
        yield survives("accept", fd, room, pointer), survives("getsockname", fd, room, ctypes.byref(ctypes.c_int(-1)))
        yield "option", survives("getsockopt", fd, 1, 4, pointer, ctypes.byref(ctypes.c_int(4)))
        yield survives("getsockopt", fd, 1, 4, room, pointer), survives("getsockopt", fd, 6, 1, room, pointer)
        yield survives("setsockopt", fd, 6, 1, pointer, 4), survives("setsockopt", fd, 1, 7, pointer, 4)
        yield "message", survives("sendmsg", fd, pointer, 0), survives("recvmsg", fd, pointer, 0)
        yield survives("recvmsg", fd, pointer, socket.MSG_PEEK | socket.MSG_TRUNC)
        yield survives("sendmmsg", fd, pointer, 1, 0), survives("recvmmsg", fd, pointer, 1, 0, None)
        parts = [Message(parts=ctypes.cast(pointer, Message._fields_[2][1]), count=n) for n in (1, 2000)]
        for part in parts:
            yield "parts", survives("sendmsg", fd, ctypes.byref(part), 0), survives("recvmsg", fd, ctypes.byref(part), 0)
            yield survives("recvmsg", fd, ctypes.byref(part), socket.MSG_PEEK | socket.MSG_TRUNC)
            yield survives("sendmsg", fd, ctypes.byref(part), socket.MSG_OOB), survives("readv", fd, pointer, part.count)
        yield "from", survives("recvfrom", fd, room, size, socket.MSG_PEEK, room, pointer)
        yield survives("recvfrom", fd, room, size, socket.MSG_PEEK, pointer, ctypes.byref(ctypes.c_int(16)))
        yield survives("recvfrom", fd, room, size, socket.MSG_PEEK, room, ctypes.byref(ctypes.c_int(-1)))
        yield "to", survives("sendto", fd, b"hello", size, 0, pointer, 16), survives("sendto", fd, pointer, size, 0, None, 0)
        yield "wait", survives("select", fd + 1, pointer, None, None, bytes(16))
        yield survives("select", 1024, None, pointer, None, None if pointer else bytes(16))
        yield survives("pselect", fd + 1, pointer, None, None, bytes(16), None)
        yield survives("poll", pointer, 1, 0), survives("ppoll", pointer, 1, bytes(16), None)
        epoll = select.epoll()
        epoll.register(conn, select.EPOLLIN)
        yield survives("epoll_wait", epoll.fileno(), pointer, 1, 0)
        yield survives("epoll_ctl", epoll.fileno(), 3, fd, pointer)
        yield pointer and survives("epoll_pwait2", epoll.fileno(), room, 1, pointer, None)
    # A message that is good, before one that is not.
    vector, _keep = messages([room])
    at = Unreadable()
    ctypes.memmove(at.ends_after(ctypes.sizeof(Message)), vector, ctypes.sizeof(Message))
    yield survives("sendmmsg", fd, at.ends_after(ctypes.sizeof(Message)), 2, 0)
    yield survives("recvmmsg", fd, at.ends_after(ctypes.sizeof(Message)), 2, 0, None)
    yield survives("recvmmsg", fd, vector, 1, 0, bad)
    steps.tell(end)


@scenario
def addresses_and_flags_of_a_send(listener, conn, peer, end, steps):
    """TCP ignores the address of a send, but not one that is none; it has flags that a UNIX stream has not."""
    if not end:
        # Which urgent byte is the last one when it is received would depend on the moment.
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
        steps.tell(end)
        got = b""
        while not got.endswith(b"!"):
            got += conn.recv(99)
        yield got
        return
    steps.wait(end)
    fd, size = conn.fileno(), ctypes.c_size_t
    four = struct.pack("=H", socket.AF_INET) + bytes(14)
    bad = ctypes.c_void_p(16)
    for to, length in [(four, 16), (four, 2), (four, 1), (four, 0), (four, -1), (bytes(200), 129), (bytes(200), 128), (bad, 16), (bad, 0), (None, 16)]:
        for flags in (0, FASTOPEN, socket.MSG_OOB, socket.MSG_MORE):
            for count in (0, 1):
                yield length, hex(flags), count, error("sendto", fd, b"x", size(count), flags, to, length)
        name = to if isinstance(to, ctypes.c_void_p) else ctypes.cast(to, ctypes.c_void_p)
        message = Message(name=name, namelen=length & 0xFFFFFFFF)
        yield "message", error("sendmsg", fd, ctypes.byref(message), 0), error("sendmsg", fd, ctypes.byref(message), FASTOPEN)
        vector, _keep = messages([ctypes.create_string_buffer(b"y", 1)] * 2)
        vector[1].name, vector[1].namelen = message.name, message.namelen
        yield "messages", error("sendmmsg", fd, vector, 2, 0)
    for control in [b"", bytes(3), struct.pack("QII", 16, 1, 1), struct.pack("QII", 20, 1, 1) + b"abcdefgh", struct.pack("QII", 16, 1, 99),
                    struct.pack("QII", 16, 6, 99), struct.pack("QII", 999, 1, 1), bytes(200_000)]:
        at = ctypes.create_string_buffer(control, len(control))
        message = Message(control=ctypes.cast(at, ctypes.c_void_p), controllen=len(control))
        yield "control", len(control), error("sendmsg", fd, ctypes.byref(message), 0)
    yield error("sendmsg", fd, ctypes.byref(Message(control=bad, controllen=16)), 0)
    for bit in range(32):
        flag = ctypes.c_int(1 << bit)
        yield bit, error("send", fd, b"z", size(0), flag), error("send", fd, b"z", size(1), flag)
        yield error("sendmsg", fd, ctypes.byref(Message()), flag)
        vector, _keep = messages([ctypes.create_string_buffer(b"v", 1)])
        yield error("sendmmsg", fd, vector, 1, flag)
    conn.sendall(b"!")


@scenario
def flags_of_a_receive(listener, conn, peer, end, steps):
    """Each flag alone, with and without room, while something is there, while nothing is, and after the end."""
    if end:
        steps.wait(end)
        conn.sendall(b"0123456789" * 200)
        steps.tell(end)
        steps.wait(end)
        conn.close()
        steps.tell(end)
        return
    fd, room = conn.fileno(), ctypes.create_string_buffer(8)
    waits = [0x1, 0x2, 0x4, 0x8, 0x10, 0x20, 0x80, 0x100, 0x200, 0x400, 0x800, 0x1000, 0x4000, 0x8000, 0x10000, 0x20000, 0x40000, 0x40000000]
    for turn in range(3):
        if turn:
            steps.tell(end)
            steps.wait(end)
            time.sleep(0.05)
        for flag in waits:
            for more in (0, socket.MSG_PEEK):
                flags = flag | more | socket.MSG_DONTWAIT
                yield turn, hex(flags), error("recv", fd, room, ctypes.c_size_t(0), flags)
                yield error("recv", fd, room, ctypes.c_size_t(1), flags)
                yield error("recvfrom", fd, room, ctypes.c_size_t(2), flags, room, ctypes.byref(ctypes.c_int(8)))
                message = Message(namelen=16, name=ctypes.cast(ctypes.create_string_buffer(128), ctypes.c_void_p), flags=77)
                yield error("recvmsg", fd, ctypes.byref(message), flags), message.namelen, message.flags & 0xFFFFFFFF
        if turn == 1:
            while attempt(conn.recv, 999, socket.MSG_DONTWAIT) != "EAGAIN":
                pass


@scenario
def urgent_bytes(listener, conn, peer, end, steps):
    """One urgent byte after others, none, and with the others (SO_OOBINLINE)."""
    if end:
        for _ in range(2):
            steps.wait(end)
            conn.send(b"abc", socket.MSG_OOB)
            conn.sendall(b"defg")
            yield error("send", conn.fileno(), b"", ctypes.c_size_t(0), socket.MSG_OOB)
            steps.tell(end)
        steps.wait(end)
    else:
        yield attempt(conn.recv, 1, socket.MSG_OOB), attempt(conn.recv, 0, socket.MSG_OOB)
        for inline in (0, 1):
            conn.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, inline)
            steps.tell(end)
            steps.wait(end)
            time.sleep(0.05)
            yield attempt(conn.recv, 1, socket.MSG_OOB | socket.MSG_PEEK), attempt(conn.recv, 1, socket.MSG_OOB)
            yield attempt(conn.recv, 99), attempt(conn.recv, 99)
        steps.tell(end)


def shown(conn, epolls):
    """What poll and each epoll instance report."""
    poll = select.poll()
    poll.register(conn, ALL_EVENTS)
    none = select.poll()
    none.register(conn, 0)
    reads, writes, exceptions = select.select([conn], [conn], [conn], 0)
    said = [event for _, event in poll.poll(0)], len(none.poll(0)), len(reads), len(writes), len(exceptions)
    return said, [[hex(event) for _, event in epoll.poll(0)] for epoll in epolls]


@scenario
def events_of_a_reset(listener, conn, peer, end, steps):
    """poll and epoll show an error until it is reported, whether bytes are left or not."""
    if end:
        conn.sendall(b"left")
        steps.wait(end)
        reset(conn)
        steps.tell(end)
        return
    level, edge, copy = select.epoll(), select.epoll(), conn.dup()
    events = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP
    level.register(conn, events)
    edge.register(copy, events | select.EPOLLET)
    edge.poll(0)
    steps.tell(end)
    steps.wait(end)
    time.sleep(0.05)
    epolls = [level, edge]
    yield shown(conn, epolls), conn.recv(9), shown(conn, epolls)
    yield attempt(conn.recv, 9), shown(conn, epolls), attempt(conn.recv, 9), shown(conn, epolls)


@scenario
def a_reset_wakes_who_waits(listener, conn, peer, end, steps):
    if end:
        steps.wait(end)
        time.sleep(0.05)
        reset(conn)
        return
    # Its data is a number that is no descriptor.
    epoll = select.epoll()
    entry = struct.pack("=IQ", select.EPOLLIN | select.EPOLLRDHUP, 0x7F00_1234_5678)
    yield LIBC.epoll_ctl(epoll.fileno(), 1, conn.fileno(), entry)
    steps.tell(end)
    room = ctypes.create_string_buffer(12)
    yield LIBC.epoll_wait(epoll.fileno(), room, 1, 60_000), struct.unpack("=IQ", room.raw)
    poll = select.poll()
    poll.register(conn, select.POLLIN)
    yield [event for _, event in poll.poll(60_000)], conn.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    yield [event for _, event in poll.poll(60_000)], [event for _, event in epoll.poll(0)]
    entry = struct.pack("=IQ", select.EPOLLIN, 5)
    yield LIBC.epoll_ctl(epoll.fileno(), 3, conn.fileno(), entry), epoll.poll(0)


@scenario
def events_of_an_end(listener, conn, peer, end, steps):
    """The peer's end is none of the connection, which hangs up when both ends have closed."""
    if end:
        conn.sendall(b"left")
        steps.wait(end)
        conn.shutdown(socket.SHUT_WR)
        steps.tell(end)
        steps.wait(end)
        conn.close()
        steps.tell(end)
        return
    epoll = select.epoll()
    epoll.register(conn, select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP)
    steps.tell(end)
    steps.wait(end)
    time.sleep(0.05)
    # What a poll for nothing reports differs, as docs/RUN.md says.
    both = lambda: (shown(conn, [epoll])[0][0], shown(conn, [epoll])[1])
    yield both(), conn.recv(9), both()
    steps.tell(end)
    steps.wait(end)
    time.sleep(0.05)
    yield both(), conn.recv(9), both()
    conn.shutdown(socket.SHUT_WR)
    yield both(), conn.recv(9), both()
