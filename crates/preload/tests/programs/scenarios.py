"""Pairs of programs that use a TCP connection within the host in many ways, and print what each end observes. The output must
be the same with and without the preloaded library. `scenarios.py NAME..` runs only these.

Each scenario has a function for the end that accepts and one for the end that connects; they run in two processes. What an
end yields is printed. `step` makes one end wait for the other one.
"""

import array
import ctypes
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import termios
import time

import scenario_calls  # noqa: F401 (its scenarios are run, too)
import scenario_ends  # noqa: F401
import scenario_signals  # noqa: F401
from scenario_kit import APART, attempt, events, everything, in_order, LIBC, many, pattern, scenario, SCENARIOS, Steps


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
def half_close(listener, conn, peer, end, steps):
    if end:
        conn.sendall(b"question")
        conn.shutdown(socket.SHUT_WR)
        yield everything(conn), attempt(conn.send, b"more")
    else:
        yield everything(conn)
        yield conn.recv(10), events(conn)
        conn.sendall(b"answer")
        conn.close()


@scenario
def end_with_everything_read(listener, conn, peer, end, steps):
    if end:
        conn.sendall(b"last words")
        conn.close()
        steps.tell(end)
    else:
        steps.wait(end)
        yield conn.recv(100), conn.recv(100), conn.recv(100)
        yield attempt(conn.send, b"one")
        time.sleep(0.1)
        yield attempt(conn.shutdown, socket.SHUT_RD), attempt(conn.getpeername)
        yield attempt(conn.send, b"two")
        yield attempt(conn.recv, 10)


@scenario
def end_with_unread_data(listener, conn, peer, end, steps):
    if end:
        conn.sendall(b"nobody reads this")
        steps.tell(end)
        steps.wait(end)
        time.sleep(0.05)
        yield attempt(conn.recv, 100), attempt(conn.recv, 100), attempt(conn.shutdown, socket.SHUT_WR), attempt(conn.getpeername)
    else:
        steps.wait(end)
        conn.sendall(b"")
        conn.close()
        steps.tell(end)


@scenario
def reset_seen_by_a_sender(listener, conn, peer, end, steps):
    if end:
        conn.sendall(b"nobody reads this")
        steps.tell(end)
        steps.wait(end)
        time.sleep(0.05)
        yield attempt(conn.send, b"one"), attempt(conn.send, b"two"), attempt(conn.getpeername), attempt(conn.shutdown, socket.SHUT_WR)
    else:
        steps.wait(end)
        conn.close()
        steps.tell(end)


@scenario
def reset_by_linger(listener, conn, peer, end, steps):
    if end:
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        conn.close()
        steps.tell(end)
    else:
        steps.wait(end)
        time.sleep(0.05)
        yield attempt(conn.recv, 10), attempt(conn.recv, 10), attempt(conn.getpeername), attempt(conn.shutdown, socket.SHUT_RDWR)


@scenario
def killed_peer(listener, conn, peer, end, steps):
    if end:
        conn.sendall(pattern(10_000))
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        got = everything(conn)
        yield len(got), in_order(got)


@scenario
def broken_pipe_signal(listener, conn, peer, end, steps):
    if end:
        conn.close()
        steps.tell(end)
    else:
        steps.wait(end)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            for _ in range(3):
                os.write(conn.fileno(), b"x")
                time.sleep(0.1)
            os._exit(0)
        yield os.waitpid(child, 0)[1]


@scenario
def receiving_shut_down(listener, conn, peer, end, steps):
    if end:
        conn.shutdown(socket.SHUT_RD)
        yield conn.recv(10)
        steps.tell(end)
        steps.wait(end)
        conn.sendall(b"still sends")
    else:
        steps.wait(end)
        yield attempt(conn.send, b"one"), attempt(conn.send, b"two"), attempt(conn.send, b"three")
        steps.tell(end)
        yield conn.recv(100)


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
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 50_000))
    yield attempt(conn.recv, 1)
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
def copies(listener, conn, peer, end, steps):
    if end:
        for n in range(4):
            conn.sendall(b"%d" % n)
            steps.wait(end)
        yield conn.recv(10)
    else:
        copy = conn.dup()
        other = os.dup2(conn.fileno(), 200)
        yield os.read(copy.fileno(), 1)
        conn.close()
        steps.tell(end)
        yield os.read(other, 1), copy.getpeername() == peer["own"]
        copy.close()
        steps.tell(end)
        yield os.read(other, 1)
        steps.tell(end)
        file = os.fdopen(other, "rb", buffering=0)
        yield file.read(1)
        steps.tell(end)
        file.close()


@scenario
def child_takes_over(listener, conn, peer, end, steps):
    if end:
        conn.sendall(b"to the child")
        yield everything(conn)
    else:
        child = os.fork()
        if child == 0:
            listener.close()
            got = conn.recv(100)
            conn.sendall(got.upper())
            os._exit(0)
        conn.close()
        yield os.waitpid(child, 0)[1]


PROGRAM = """
import os, socket, sys
conn = socket.socket(fileno=0)
print(conn.family, conn.type, conn.proto, conn.getpeername()[0], conn.getsockname()[1] == int(sys.argv[1]), flush=True)
print(conn.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE), file=sys.stderr)
print(sys.stdin.buffer.raw.read(100), file=sys.stderr)
"""


@scenario
def another_program_takes_over(listener, conn, peer, end, steps):
    if end:
        conn.sendall(b"for the program")
        conn.shutdown(socket.SHUT_WR)
        yield everything(conn)
    else:
        port = conn.getsockname()[1]
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(conn.fileno(), 0)
            os.dup2(conn.fileno(), 1)
            os.dup2(write, 2)
            os.closerange(3, 2000)
            os.execv(sys.executable, [sys.executable, "-c", PROGRAM, str(port)])
        conn.close()
        os.close(write)
        yield os.waitpid(child, 0)[1], os.read(read, 1000)


@scenario
def passed_on(listener, conn, peer, end, steps):
    if end:
        conn.sendall(b"passed on")
        yield everything(conn)
    else:
        one, other = socket.socketpair()
        child = os.fork()
        if child == 0:
            conn.close()
            _, fds, _, _ = socket.recv_fds(other, 1, 1)
            got = socket.socket(fileno=fds[0])
            answer = b"%s %r" % (got.recv(100), got.getpeername() == peer["own"])
            got.sendall(answer)
            os._exit(0)
        socket.send_fds(one, [b"x"], [conn.fileno()])
        conn.close()
        os.waitpid(child, 0)


@scenario
def all_descriptors_closed(listener, conn, peer, end, steps):
    if end:
        conn.sendall(b"still here")
        yield everything(conn)
    else:
        os.closerange(max(conn.fileno(), steps.pipes[1][1]) + 1, 20_000)
        yield conn.recv(100), conn.getpeername() == peer["own"]
        conn.sendall(b"and here")


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
def both_close_at_once(listener, conn, peer, end, steps):
    conn.sendall(b"x")
    yield conn.recv(1)
    conn.shutdown(socket.SHUT_RDWR)
    yield attempt(conn.send, b"x"), conn.recv(1)


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


@scenario
def dissolved(listener, conn, peer, end, steps):
    """A connected socket is connected to nobody (AF_UNSPEC), and then to somebody else."""
    if end:
        conn.sendall(b"for the first")
        steps.wait(end)
        other = socket.create_server((peer["own"][0], 0), family=conn.family)
        yield attempt(LIBC.connect, conn.fileno(), bytes(16), 16)
        yield attempt(conn.getpeername), attempt(conn.send, b"for nobody")
        yield attempt(conn.connect, other.getsockname()), conn.getpeername() == other.getsockname()
        steps.tell(end)
        steps.wait(end)
        yield attempt(conn.send, b"for the second")
        accepted, _ = other.accept()
        yield accepted.recv(99), conn.getblocking(), os.get_inheritable(conn.fileno())
        conn.close()
        yield everything(accepted)
    else:
        yield conn.recv(99)
        steps.tell(end)
        steps.wait(end)
        yield attempt(conn.recv, 99), attempt(conn.recv, 99)
        steps.tell(end)


def connect(address, style):
    sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
    if style == "blocking":
        sock.connect(address)
    else:
        sock.setblocking(False)
        # As nginx does: registered before it is connected.
        edge = select.epoll()
        edge.register(sock, select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET)
        outcome = sock.connect_ex(address)
        assert outcome in (0, errno.EINPROGRESS), outcome
        while not (event := edge.poll(60)[0][1]) & select.EPOLLOUT:
            pass
        assert event & ~select.EPOLLIN == select.EPOLLOUT, event
        edge.close()
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        sock.setblocking(True)
    return sock


def stuck(name, style, children):
    for child in children:
        os.kill(child, signal.SIGKILL)
    sys.exit(f"{name} {style}: an end still waits after 150 s")


def run(name, family, style):
    function = {**SCENARIOS, **APART}[name]
    steps = Steps()
    listener = socket.socket(family)
    listener.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
    listener.listen(5)
    outputs = [os.pipe(), os.pipe()]
    children = []
    for end in (0, 1):
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)
            if end:
                address = listener.getsockname()
                listener.close()
                conn = connect(address, style)
                peer = {"own": address, "peer": conn.getsockname()}
            else:
                conn, address = listener.accept()
                peer = {"own": address, "peer": listener.getsockname()}
            for line in function(listener, conn, peer, end, steps) or ():
                os.write(outputs[end][1], f"{name} {style} {'connecting' if end else 'accepting'}: {line}\n".encode())
            os._exit(0)
        children.append(child)
    # By the parent: scenarios use the timer themselves, and one end would wait for the other for ever.
    signal.signal(signal.SIGALRM, lambda *_: stuck(name, style, children))
    signal.alarm(150)
    for end in (0, 1):
        os.waitpid(children[end], 0)
    signal.alarm(0)
    listener.close()
    for end in (0, 1):
        os.close(outputs[end][1])
        while part := os.read(outputs[end][0], 65536):
            sys.stdout.buffer.write(part)
        os.close(outputs[end][0])
    for pipe in (*steps.pipes, steps.signals):
        os.close(pipe[0])
        os.close(pipe[1])
    sys.stdout.flush()


for name in sys.argv[1:] or SCENARIOS:
    run(name, socket.AF_INET, "blocking")
    run(name, socket.AF_INET6, "non-blocking")
