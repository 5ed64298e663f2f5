"""Scenarios of signals that come while a call waits: handlers that want calls to be restarted (SA_RESTART), and others."""

import ctypes
import select
import signal
import socket
import struct
import time

from scenario_calls import error
from scenario_kit import apart, attempt, messages, pattern, scenario

SIZE = ctypes.c_size_t


def interrupted(steps, restarts, call, *args, after=0.02):
    """What a call of the C library returns during which signals come, and whether their handler ran.

    They come until it returns: on a loaded machine, the first one may come before the call."""
    ran = []
    signal.signal(signal.SIGALRM, lambda *_: ran.append(1))
    signal.siginterrupt(signal.SIGALRM, not restarts)
    # In the C handler: the one in Python runs after the call.
    signal.set_wakeup_fd(steps.signals[1], warn_on_full_buffer=False)
    signal.setitimer(signal.ITIMER_REAL, after, after)
    outcome = error(call, *args)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.set_wakeup_fd(-1)
    steps.forget()
    return outcome, bool(ran)


@scenario
def signals_during_a_receive(listener, conn, peer, end, steps):
    """A call that is restarted receives what comes later; with SO_RCVTIMEO, none is."""
    fd, room = conn.fileno(), ctypes.create_string_buffer(99)
    many, _keep = messages([room])
    message = messages([room])[0]
    calls = [
        ("recv", fd, room, SIZE(9), 0), ("recv", fd, room, SIZE(9), socket.MSG_WAITALL), ("read", fd, room, SIZE(9)),
        ("recvfrom", fd, room, SIZE(9), 0, None, None), ("recvfrom", fd, room, SIZE(9), 0, room, ctypes.byref(ctypes.c_int(9))),
        ("recvmsg", fd, message, 0), ("recvmmsg", fd, many, 1, 0, None), ("readv", fd, many[0].parts, 1),
        ("recv", fd, room, SIZE(9), socket.MSG_TRUNC), ("recv", fd, room, SIZE(9), socket.MSG_PEEK | socket.MSG_WAITALL),
    ]
    for limit in (0, 60):
        if not end:
            conn.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", limit, 0))
        for restarts in (False, True):
            for call in calls:
                if end:
                    steps.wait(end)
                    if restarts and not limit:
                        steps.signal()
                        conn.sendall(b"123456789")
                        steps.wait(end)
                else:
                    steps.tell(end)
                    yield limit, restarts, call[0], interrupted(steps, restarts, *call)
                    if restarts and not limit:
                        steps.tell(end)
                        attempt(conn.recv, 99, socket.MSG_DONTWAIT)
    # What has come before the signal is returned.
    for flags in (0, socket.MSG_PEEK):
        for restarts in (False, True):
            if end:
                steps.wait(end)
                conn.sendall(b"1234")
                steps.wait(end)
            else:
                steps.tell(end)
                select.select([conn], [], [])
                yield flags, restarts, interrupted(steps, restarts, "recv", fd, room, SIZE(9), socket.MSG_WAITALL | flags)
                steps.tell(end)
                attempt(conn.recv, 99, socket.MSG_DONTWAIT)


@scenario
def signals_during_a_wait(listener, conn, peer, end, steps):
    """Calls that wait for descriptors are never restarted."""
    if end:
        steps.wait(end)
        return
    fd, epoll = conn.fileno(), select.epoll()
    epoll.register(conn, select.EPOLLIN)
    words = (ctypes.c_ulong * 16)()
    for restarts in (False, True):
        entry = ctypes.create_string_buffer(struct.pack("ihh", fd, select.POLLIN, 0), 8)
        limit = ctypes.create_string_buffer(struct.pack("ll", 60, 0), 16)
        yield interrupted(steps, restarts, "poll", entry, 1, 60_000), interrupted(steps, restarts, "ppoll", entry, 1, limit, None)
        for call in ("select", "pselect"):
            words[fd // 64] = 1 << fd % 64
            yield interrupted(steps, restarts, call, fd + 1, words, None, None, limit, None), list(words)[fd // 64] == 1 << fd % 64
            limit = ctypes.create_string_buffer(struct.pack("ll", 60, 0), 16)
        events = ctypes.create_string_buffer(12)
        yield interrupted(steps, restarts, "epoll_wait", epoll.fileno(), events, 1, 60_000)
        yield interrupted(steps, restarts, "epoll_pwait2", epoll.fileno(), events, 1, limit, None)
    steps.tell(end)


def fill(conn, data):
    """Sends until there is no room for a byte."""
    while isinstance(attempt(conn.send, b"x", socket.MSG_DONTWAIT), int):
        for part in (data, b"x"):
            while isinstance(attempt(conn.send, part, socket.MSG_DONTWAIT), int):
                pass
        time.sleep(0.1)


def drain(conn):
    while select.select([conn], [], [], 0.1)[0]:
        conn.recv(1 << 20)


@scenario
def signals_during_a_send(listener, conn, peer, end, steps):
    """A send that has no room waits again, or returns what it has sent."""
    # Else, TCP makes room for more as long as it can, and the buffers are never full.
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF if end else socket.SO_RCVBUF, 200_000)
    steps.tell(end)
    steps.wait(end)
    for limit in (0, 60):
        for restarts in (False, True):
            if end:
                conn.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", limit, 0))
                data = pattern(1 << 20)
                fill(conn, data)
                steps.tell(end)
                yield limit, restarts, interrupted(steps, restarts, "send", conn.fileno(), b"x", SIZE(1), 0)
                steps.tell(end)
                steps.wait(end)
                # There is room for a part of this one.
                (sent, why), ran = interrupted(steps, restarts, "send", conn.fileno(), data * 64, SIZE(64 << 20), 0, after=0.2)
                yield 0 < sent < 64 << 20, why, ran
                steps.tell(end)
                steps.wait(end)
            else:
                steps.wait(end)
                if restarts and not limit:
                    steps.signal()
                    drain(conn)
                steps.wait(end)
                drain(conn)
                steps.tell(end)
                steps.wait(end)
                drain(conn)
                steps.tell(end)


@apart
def signals_during_a_connect(listener, conn, peer, end, steps):
    """To a listener whose queue is full, and to one that accepts late; and during accept."""
    if not end:
        other = socket.create_server((peer["own"][0], 0), family=conn.family, backlog=1)
        conn.sendall(struct.pack("i", other.getsockname()[1]))
        steps.wait(end)
        steps.signal()
        taken = [other.accept()[0] for _ in range(3)]
        steps.wait(end)
        for restarts in (False, True):
            # One that is restarted accepts what comes later.
            if restarts:
                steps.tell(end)
            (accepted, why), ran = interrupted(steps, restarts, "accept", other.fileno(), None, None)
            if not restarts:
                steps.tell(end)
            yield accepted >= 0, why, ran
            if accepted >= 0:
                taken.append(socket.socket(fileno=accepted))
                yield taken[-1].recv(9)
            steps.wait(end)
            while select.select([other], [], [], 0.1)[0]:
                taken.append(other.accept()[0])
                yield taken[-1].recv(9)
        return
    address = (conn.getpeername()[0], struct.unpack("i", conn.recv(4))[0])
    four = conn.family == socket.AF_INET
    raw = struct.pack("=H", conn.family) + struct.pack("!H", address[1])
    raw += socket.inet_aton(address[0]) + bytes(8) if four else bytes(4) + socket.inet_pton(socket.AF_INET6, address[0]) + bytes(4)
    filling = []
    for _ in range(2):
        filling.append(socket.socket(conn.family))
        filling[-1].setblocking(False)
        filling[-1].connect_ex(address)
    time.sleep(0.05)
    late = socket.socket(conn.family)
    yield interrupted(steps, False, "connect", late.fileno(), raw, len(raw)), error("getpeername", late.fileno(), raw, ctypes.byref(ctypes.c_int(0)))
    late.setblocking(False)
    yield attempt(late.connect, address)
    steps.tell(end)
    late.setblocking(True)
    yield interrupted(steps, True, "connect", late.fileno(), raw, len(raw)), late.getpeername() == conn.getpeername()[:1] + late.getpeername()[1:]
    steps.tell(end)
    for restarts in (False, True):
        steps.wait(end)
        if restarts:
            steps.signal()
        with socket.socket(conn.family) as fresh:
            yield interrupted(steps, restarts, "connect", fresh.fileno(), raw, len(raw), after=0.001)[0]
            fresh.sendall(b"hello")
        steps.tell(end)
