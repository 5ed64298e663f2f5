"""Scenarios of how a connection ends: half, whole, by a reset, by the death of an end."""

import os
import signal
import socket
import struct
import time

from scenario_kit import attempt, events, everything, in_order, LIBC, pattern, scenario


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
def both_close_at_once(listener, conn, peer, end, steps):
    conn.sendall(b"x")
    yield conn.recv(1)
    conn.shutdown(socket.SHUT_RDWR)
    yield attempt(conn.send, b"x"), conn.recv(1)


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
