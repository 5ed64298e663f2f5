"""Scenarios of options, and of what is sent, received, counted and awaited on a connection."""

import array
import ctypes
import fcntl
import os
import select
import socket
import struct
import termios
import time

from scenario_kit import attempt, events, everything, in_order, many, pattern, scenario


@scenario
def names_and_options(listener, conn, peer, end, steps):
    yield conn.family, conn.type, conn.proto
    yield conn.getsockname() == peer["peer"], conn.getpeername() == peer["own"]
    for level, name in [
        (socket.SOL_SOCKET, socket.SO_TYPE), (socket.SOL_SOCKET, socket.SO_DOMAIN), (socket.SOL_SOCKET, socket.SO_PROTOCOL),
        (socket.SOL_SOCKET, socket.SO_ERROR), (socket.SOL_SOCKET, socket.SO_KEEPALIVE), (socket.SOL_SOCKET, socket.SO_ACCEPTCONN),
        (socket.SOL_SOCKET, socket.SO_SNDBUF), (socket.SOL_SOCKET, socket.SO_RCVBUF),
        (socket.IPPROTO_TCP, socket.TCP_NODELAY), (socket.IPPROTO_TCP, socket.TCP_MAXSEG), (socket.IPPROTO_IP, socket.IP_TTL),
    ]:
        yield level, name, attempt(conn.getsockopt, level, name)
    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 30000)
    yield conn.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), conn.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    yield conn.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    yield "state", conn.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)[0]
    other = ("::1" if conn.family == socket.AF_INET6 else "127.0.0.1", 9)
    yield attempt(conn.connect, other), attempt(conn.bind, other), attempt(conn.accept)
    conn.settimeout(60)
    if end:
        conn.sendall(b"x")
        yield conn.recvfrom(10)
    else:
        yield conn.recvfrom(10)
        conn.sendall(b"y")


@scenario
def much_data_both_ways(listener, conn, peer, end, steps):
    data = pattern(3_000_001)
    child = os.fork()
    if child == 0:
        conn.sendall(data)
        conn.shutdown(socket.SHUT_WR)
        os._exit(0)
    got = everything(conn)
    yield len(got), in_order(got)
    os.waitpid(child, 0)


@scenario
def flags(listener, conn, peer, end, steps):
    if end:
        conn.sendall(b"0123456789")
        yield conn.send(b"", 0), conn.sendto(b"x", peer["own"])
        yield conn.sendmsg([b"a", b"b"], [], 0, peer["own"])
        conn.sendall(b"tail")
    else:
        time.sleep(0.2)
        yield conn.recv(4, socket.MSG_PEEK), conn.recv(4, socket.MSG_TRUNC) is not None
        yield conn.recv(6), conn.recv(3)
        yield conn.recv(4, socket.MSG_WAITALL), attempt(conn.recv, 4, socket.MSG_DONTWAIT) in ("EAGAIN", b"")
        yield attempt(conn.recv, 4, socket.MSG_ERRQUEUE)


@scenario
def counts(listener, conn, peer, end, steps):
    def ask(request):
        value = array.array("i", [-1])
        fcntl.ioctl(conn, request, value)
        return value[0]

    if end:
        conn.sendall(b"0123456789")
        time.sleep(0.1)
        yield ask(termios.TIOCOUTQ)
        steps.tell(end)
        steps.wait(end)
    else:
        steps.wait(end)
        yield ask(termios.FIONREAD), conn.recv(3), ask(termios.FIONREAD)
        steps.tell(end)


@scenario
def timeouts(listener, conn, peer, end, steps):
    # The second one has times of 64 bits on every processor.
    for name, form in ((socket.SO_RCVTIMEO, "ll"), (66, "qq")):
        conn.setsockopt(socket.SOL_SOCKET, name, struct.pack(form, 0, 50_000))
        yield attempt(conn.recv, 1)
        conn.setsockopt(socket.SOL_SOCKET, name, struct.pack(form, 0, 0))
    conn.setblocking(False)
    yield attempt(conn.recv, 1), fcntl.fcntl(conn, fcntl.F_GETFL) & os.O_NONBLOCK != 0
    steps.tell(end)
    steps.wait(end)
    sent = 0
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000)
    # TCP may find room again soon after it has refused to send.
    while not isinstance(now := attempt(conn.send, pattern(10_000)), str) or select.select([], [conn], [], 0.1)[1]:
        sent += now if isinstance(now, int) else 0
    yield now, sent > 20_000, events(conn)
    steps.tell(end)
    steps.wait(end)


@scenario
def waiting(listener, conn, peer, end, steps):
    if end:
        time.sleep(0.1)
        conn.sendall(b"now")
        steps.wait(end)
    else:
        edge = select.epoll()
        edge.register(conn, select.EPOLLIN | select.EPOLLET | select.EPOLLRDHUP)
        yield [event for _, event in edge.poll(5)], edge.poll(0.05), select.select([conn], [conn], [], 1)[0] == [conn]
        yield conn.recv(10), select.select([conn], [], [], 0)[0]
        steps.tell(end)
        yield [event & select.EPOLLIN for _, event in edge.poll(5)], conn.recv(10)


@scenario
def files(listener, conn, peer, end, steps):
    if end:
        with open(os.path.join(os.environ["WORK"], "file"), "wb+") as file:
            file.write(pattern(200_000))
            file.flush()
            sent = 0
            while sent < 200_000:
                sent += os.sendfile(conn.fileno(), file.fileno(), sent, 200_000 - sent)
        conn.shutdown(socket.SHUT_WR)
        read, write = os.pipe()
        yield os.splice(conn.fileno(), write, 100), os.read(read, 100)
    else:
        got = everything(conn)
        yield len(got), in_order(got)
        conn.sendall(b"by splice")


@scenario
def urgent(listener, conn, peer, end, steps):
    if end:
        conn.sendall(b"before")
        conn.send(b"!", socket.MSG_OOB)
        steps.tell(end)
        steps.wait(end)
    else:
        steps.wait(end)
        time.sleep(0.05)
        yield select.select([], [], [conn], 1)[2] == [conn], conn.recv(1, socket.MSG_OOB), conn.recv(100)
        steps.tell(end)


@scenario
def several_messages_per_call(listener, conn, peer, end, steps):
    conn.setblocking(True)
    if end:
        yield many("sendmmsg", conn, [b"one", b"", b"three", pattern(5000)], 0)
        conn.setblocking(False)
        sent = 0
        while (outcome := many("sendmmsg", conn, [b"x" * 70_000] * 3, 0))[0] > 0:
            sent += sum(outcome[2])
        yield outcome[:2], sent > 210_000
        steps.tell(end)
        conn.setblocking(True)
        steps.wait(end)
        time.sleep(0.05)
        yield [many("sendmmsg", conn, [b"1", b"2"], socket.MSG_NOSIGNAL)[:2] for _ in range(3)][2]
    else:
        steps.wait(end)
        room = [ctypes.create_string_buffer(8) for _ in range(4)]
        yield many("recvmmsg", conn, room[:1], 0, None), many("recvmmsg", conn, room[1:], 0, None), [b.raw for b in room]
        wait_for_one = 0x10000
        yield many("recvmmsg", conn, room[:2], wait_for_one, None)[0]
        limit = (ctypes.c_long * 2)(0, 0)
        yield many("recvmmsg", conn, room, 0, limit)[0], list(limit)
        yield many("recvmmsg", conn, room, 0, (ctypes.c_long * 2)(-1, 0))[:2]
        conn.settimeout(0)
        while many("recvmmsg", conn, [ctypes.create_string_buffer(65536)] * 2, 0, None)[0] > 0:
            pass
        yield many("recvmmsg", conn, room, 0, None)[:2]
        conn.close()
        steps.tell(end)


@scenario
def peeks_all(listener, conn, peer, end, steps):
    """Peeking with MSG_WAITALL waits for all bytes, for the end, or for as long as SO_RCVTIMEO says."""
    both = socket.MSG_PEEK | socket.MSG_WAITALL
    if end:
        conn.sendall(b"abc")
        time.sleep(0.2)
        conn.sendall(b"defgh")
        steps.wait(end)
        conn.sendall(b"xyz")
        steps.wait(end)
        time.sleep(0.1)
        conn.shutdown(socket.SHUT_WR)
        steps.wait(end)
    else:
        yield conn.recv(8, both), conn.recv(8)
        steps.tell(end)
        yield conn.recv(2, both), conn.recv(3, both)
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 50_000))
        yield conn.recv(9, both)
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))
        yield conn.recv(9, both | socket.MSG_DONTWAIT)
        steps.tell(end)
        yield conn.recv(9, both), conn.recv(9), conn.recv(9, both)
        steps.tell(end)
