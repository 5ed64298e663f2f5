"""Scenarios of copies, children and other programs that end a connection, of resets, and of what a call must not touch."""

import ctypes
import errno
import os
import select
import socket
import struct
import subprocess
import sys
import time

from scenario_kit import attempt, everything, LIBC, Part, pattern, scenario


def in_child(what, *args):
    """What a child process observes."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, repr(attempt(what, *args)).encode())
        os._exit(0)
    os.wait()
    os.close(write)
    return os.read(read, 1000)


SENDER = """
import os, socket
try:
    print(socket.socket(fileno=0).send(b"from another program"), flush=True)
except OSError as error:
    print(error, flush=True)
"""


def in_program(text, stdin):
    """What another program prints, whose standard input is a descriptor; started by fork and exec."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.dup2(stdin, 0)
        os.dup2(write, 1)
        os.set_inheritable(stdin, False)
        os.execv(sys.executable, [sys.executable, "-c", text])
    os.wait()
    os.close(write)
    return os.read(read, 1000)


@scenario
def end_by_a_copy(listener, conn, peer, end, steps):
    """Whoever shuts down sending, nobody sends any more."""
    if end:
        copy = conn.dup()
        conn.sendall(b"all")
        copy.shutdown(socket.SHUT_WR)
        yield attempt(conn.send, b"x"), attempt(copy.send, b"x"), in_child(conn.send, b"x")
        yield in_program(SENDER, conn.fileno())
        steps.tell(end)
    else:
        yield everything(conn)
        steps.wait(end)


@scenario
def end_by_a_child(listener, conn, peer, end, steps):
    if end:
        yield in_child(conn.shutdown, socket.SHUT_WR), attempt(conn.send, b"x"), attempt(conn.send, b"y")
        steps.tell(end)
    else:
        yield everything(conn)
        steps.wait(end)


@scenario
def copies_after_the_end(listener, conn, peer, end, steps):
    """The first byte after the peer's end is accepted, by whichever copy, and no other; nothing is no byte."""
    if end:
        conn.close()
        steps.tell(end)
    else:
        copy = conn.dup()
        steps.wait(end)
        time.sleep(0.05)
        yield attempt(conn.send, b""), attempt(os.writev, conn.fileno(), [b"", b""]), attempt(copy.send, b"")
        yield attempt(conn.send, b"one")
        time.sleep(0.05)
        yield attempt(copy.send, b"two"), attempt(conn.send, b"three"), attempt(copy.recv, 9), attempt(copy.getpeername)


def reset(conn):
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    conn.close()


@scenario
def reset_by_linger_seen_by_a_sender(listener, conn, peer, end, steps):
    if end:
        reset(conn)
        steps.tell(end)
    else:
        steps.wait(end)
        time.sleep(0.05)
        yield attempt(conn.send, b"one"), attempt(conn.send, b"two"), attempt(conn.recv, 9), attempt(conn.getpeername)


@scenario
def reset_seen_by_an_option(listener, conn, peer, end, steps):
    if end:
        reset(conn)
        steps.tell(end)
    else:
        steps.wait(end)
        time.sleep(0.05)
        yield [conn.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) for _ in range(2)]
        yield attempt(conn.send, b"one"), attempt(conn.recv, 9), attempt(conn.getpeername)


@scenario
def reset_seen_by_parts(listener, conn, peer, end, steps):
    """A receive without room does not report it, and one whose first part is empty does."""
    if end:
        reset(conn)
        steps.tell(end)
    else:
        steps.wait(end)
        time.sleep(0.05)
        yield attempt(os.readv, conn.fileno(), [bytearray(0)]), attempt(os.read, conn.fileno(), 0)
        yield attempt(conn.recvmsg_into, [bytearray(0), bytearray(9)]), attempt(conn.recvmsg_into, [bytearray(0), bytearray(9)])


@scenario
def reset_while_a_sender_waits(listener, conn, peer, end, steps):
    if end:
        conn.setblocking(False)
        while isinstance(attempt(conn.send, pattern(65_536)), int) or select.select([], [conn], [], 0.1)[1]:
            pass
        conn.setblocking(True)
        steps.tell(end)
        outcomes = [attempt(conn.send, pattern(1 << 20)) for _ in range(4)]
        # TCP may take some bytes before it learns of the reset.
        yield [outcome for outcome in outcomes if isinstance(outcome, str)][:2], attempt(conn.recv, 9)
    else:
        steps.wait(end)
        time.sleep(0.1)
        conn.close()


@scenario
def discarding(listener, conn, peer, end, steps):
    """With MSG_TRUNC, bytes are received and thrown away: all that were asked for, with MSG_WAITALL."""
    if end:
        conn.sendall(pattern(200_000))
        conn.sendall(b"tail")
        steps.wait(end)
    else:
        conn.settimeout(60)
        conn.setblocking(True)
        done = LIBC.recv(conn.fileno(), None, 150_000, socket.MSG_TRUNC | socket.MSG_WAITALL)
        done += LIBC.recv(conn.fileno(), None, 50_000, socket.MSG_TRUNC | socket.MSG_WAITALL)
        yield done
        yield attempt(conn.recvmsg_into, [bytearray(0), bytearray(1), bytearray(1)], 0, socket.MSG_TRUNC)[0], conn.recv(9)
        steps.tell(end)


OPTIONS = """
import socket
conn = socket.socket(fileno=0)
before = [conn.getsockopt(*option) for option in [(6, 1), (6, 4), (1, 9)]] + [conn.getsockopt(6, 11, 1)]
conn.setsockopt(6, 4, 77)
print(before, conn.getsockopt(6, 4), conn.getpeername()[0], flush=True)
"""


@scenario
def another_program_has_the_options(listener, conn, peer, end, steps):
    """Also if it is started by vfork, and the descriptor of which it gets a copy is closed on exec."""
    if end:
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 123)
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        yield subprocess.run([sys.executable, "-c", OPTIONS], stdin=conn, stdout=subprocess.PIPE).stdout
        yield in_program(OPTIONS, conn.fileno())
        steps.tell(end)
    else:
        steps.wait(end)


@scenario
def bad_pointers(listener, conn, peer, end, steps):
    def error(call, *args):
        outcome = getattr(LIBC, call)(*args)
        return outcome, errno.errorcode.get(ctypes.get_errno()) if outcome < 0 else None

    fd, bad = conn.fileno(), ctypes.c_void_p(16)
    if end:
        parts = (Part * 3)(Part(b"abc", 3), Part(ctypes.cast(bad, ctypes.c_char_p), 5), Part(b"xyz", 3))
        yield error("write", fd, bad, 5), error("writev", fd, parts, 3), error("writev", fd, bad, 2)
        conn.sendall(b"after")
        steps.wait(end)
    else:
        # Once it is there, no call looks for it.
        steps.tell(end)
        yield conn.recv(1, socket.MSG_PEEK), error("read", fd, bad, 5), error("readv", fd, bad, 2)
        yield error("poll", bad, 1, 0), error("ppoll", bad, 1, None, None), conn.recv(9)
