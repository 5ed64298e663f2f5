"""Scenarios of copies of a descriptor, and of children and other programs that take over a connection."""

import os
import socket
import sys

from scenario_kit import everything, scenario


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
