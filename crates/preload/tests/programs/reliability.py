"""Programs that end suddenly, are many, are poor, or do not trust each other. `reliability.py NAME` prints one line, which says
what was observed."""

import ctypes
import fcntl
import os
import random
import resource
import select
import signal
import socket
import struct
import sys
import threading
import time
from multiprocessing import shared_memory


def pattern(at, length):
    return bytes((at + n) % 251 for n in range(length))


def listening():
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(1000)
    return listener


def count(conn):
    """Receives until the end or a reset; returns how many bytes came, after checking each."""
    total = 0
    while True:
        try:
            part = conn.recv(65536)
        except ConnectionResetError:
            return total
        if not part:
            return total
        assert part == pattern(total, len(part)), f"other bytes after {total}"
        total += len(part)


def kills(times):
    """Kills a sender at a random instant, also while it connects. What its sends have returned must arrive."""
    listener = listening()
    sent = shared_memory.SharedMemory(create=True, size=8)
    dice = random.Random(1)
    arrived = 0
    for _ in range(times):
        struct.pack_into("q", sent.buf, 0, 0)
        child = os.fork()
        if child == 0:
            conn = socket.create_connection(listener.getsockname())
            total = 0
            while True:
                total += conn.send(pattern(total, 1000 + total % 3000))
                struct.pack_into("q", sent.buf, 0, total)
        killer = os.fork()
        if killer == 0:
            time.sleep(dice.random() * 0.02)
            os.kill(child, signal.SIGKILL)
            os._exit(0)
        dice.random()
        # It may be killed before it connects.
        listener.settimeout(0.2)
        try:
            conn, _ = listener.accept()
        except TimeoutError:
            conn = None
        got = count(conn) if conn else 0
        os.waitpid(killer, 0)
        os.waitpid(child, 0)
        returned = struct.unpack_from("q", sent.buf, 0)[0]
        assert got >= returned, f"{got} bytes arrived, sends have returned {returned}"
        arrived += conn is not None
        if conn:
            conn.close()
    sent.close()
    sent.unlink()
    print(f"{times} kills", arrived > 0)


def many(number):
    """Holds many connections at once, and uses each."""
    listener = listening()
    started, starts = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(starts, b"!")
        conns = [listener.accept()[0] for _ in range(number)]
        for conn in conns:
            conn.sendall(conn.recv(100).upper())
        os._exit(0)
    # Until the child runs, nobody but this thread could accept, and what a thread connects to itself is left alone.
    os.read(started, 1)
    conns = [socket.create_connection(listener.getsockname()) for _ in range(number)]
    names = {conn.getsockname() for conn in conns}
    for n, conn in enumerate(conns):
        conn.sendall(b"number %d" % n)
    right = sum(conn.recv(100) == b"NUMBER %d" % n for n, conn in enumerate(conns))
    print(f"{right} of {number}", len(names), os.waitpid(child, 0)[1])


def poor():
    """Has 64 descriptors, and may use all of them."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    listener = listening()
    conns = []
    try:
        while True:
            conns.append(socket.create_connection(listener.getsockname()))
            conns.append(listener.accept()[0])
    except OSError:
        pass
    print(f"{len(conns)} descriptors")


def poor_server(times):
    """A server that has 64 descriptors: nobody waits for it to move a connection."""
    listener = listening()
    server = os.fork()
    if server == 0:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        own = socket.create_server(("127.0.0.1", 0))
        address = own.getsockname()
        listener.accept()[0].sendall(b"%d" % address[1])
        for _ in range(times):
            conn, _ = own.accept()
            conn.sendall(conn.recv(100).upper())
            conn.close()
        os._exit(0)
    with socket.create_connection(listener.getsockname()) as conn:
        address = ("127.0.0.1", int(conn.recv(100)))
    right = 0
    for n in range(times):
        with socket.create_connection(address) as conn:
            conn.sendall(b"hello")
            right += conn.recv(100) == b"HELLO"
    os.waitpid(server, 0)
    print(f"{right} of {times}")


def crowded(times):
    """Other threads take every descriptor that is free, while this one connects: where there is one for the socket, there is a
    connection."""
    listener = listening()
    server = os.fork()
    if server == 0:
        while True:
            conn, _ = listener.accept()
            try:
                conn.sendall(conn.recv(100).upper())
                conn.recv(100)
            except ConnectionResetError:
                pass
            conn.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (1100, 1100))
    done = threading.Event()

    def take():
        while not done.is_set():
            taken = []
            try:
                while True:
                    taken.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                pass
            for _ in range(40):
                try:
                    taken.append(os.open("/dev/null", os.O_RDONLY))
                except OSError:
                    pass
            for fd in taken:
                os.close(fd)

    thread = threading.Thread(target=take)
    thread.start()
    made = wrong = 0
    while made < times:
        try:
            conn = socket.socket()
        except OSError:
            continue
        made += 1
        try:
            conn.connect(listener.getsockname())
            conn.sendall(b"hello")
            wrong += conn.recv(100) != b"HELLO"
        except OSError:
            wrong += 1
        conn.close()
    done.set()
    thread.join()
    print(f"{times} connections, {wrong} wrong")
    os.kill(server, signal.SIGKILL)
    os.waitpid(server, 0)


def unseen(number):
    """Closes connections by calls that go past the library, one after the other: both ends see that, and no descriptor
    remains when their numbers are used again."""
    listener = listening()
    accepted = []
    past = ctypes.CDLL("libc.so.6")
    before = len(os.listdir("/proc/self/fd"))
    ended = 0
    for _ in range(number):
        accepting = threading.Thread(target=lambda: accepted.append(listener.accept()[0]))
        accepting.start()
        conn = socket.create_connection(listener.getsockname())
        accepting.join()
        peer = accepted.pop()
        past.close(conn.detach())
        ended += peer.recv(1) == b""
        peer.close()
    # What uses their numbers next.
    with socket.socket(), socket.socket():
        print(ended, "of", number, len(os.listdir("/proc/self/fd")) - before)


def inherited(number):
    """Starts a program that inherits many connections."""
    listener = listening()
    started, starts = os.pipe()
    if os.fork() == 0:
        os.write(starts, b"!")
        for _ in range(number):
            os.set_inheritable(listener.accept()[0].detach(), True)
        os.execv(sys.executable, [sys.executable, "-c", "print('started')"])
    os.read(started, 1)
    conns = [socket.create_connection(listener.getsockname()) for _ in range(number)]
    os.wait()
    print(len(conns), "connections")


def storm():
    """Forks all the time while connections are made by several threads' worth of children."""
    listener = listening()
    server = os.fork()
    if server == 0:
        while True:
            conn, _ = listener.accept()
            if os.fork() == 0:
                conn.sendall(conn.recv(100))
                os._exit(0)
            conn.close()
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                pass
    clients = []
    for n in range(8):
        child = os.fork()
        if child == 0:
            for turn in range(20):
                with socket.create_connection(listener.getsockname()) as conn:
                    if os.fork() == 0:
                        os._exit(0)
                    conn.sendall(b"%d %d" % (n, turn))
                    assert conn.recv(100) == b"%d %d" % (n, turn)
                    assert conn.recv(100) == b""
                    os.wait()
            os._exit(0)
        clients.append(child)
    print([os.waitpid(child, 0)[1] for child in clients])
    os.kill(server, signal.SIGKILL)
    os.waitpid(server, 0)


def users():
    """A client of another user."""
    listener = listening()
    child = os.fork()
    if child == 0:
        os.setgid(65534)
        os.setuid(65534)
        conn = socket.create_connection(listener.getsockname())
        conn.sendall(b"from another user")
        print(conn.recv(100), flush=True)
        os._exit(0)
    conn, _ = listener.accept()
    conn.sendall(conn.recv(100))
    os.waitpid(child, 0)


def hostile():
    """Another user connects to every unnamed UNIX listener that appears, in the hope to take part in a connection."""
    listener = listening()
    thief = os.fork()
    if thief == 0:
        os.setgid(65534)
        os.setuid(65534)
        while True:
            for line in open("/proc/net/unix"):
                name = line.split()[-1]
                if name.startswith("@") and len(name) == 6:
                    try:
                        with socket.socket(socket.AF_UNIX) as taken:
                            taken.setblocking(False)
                            taken.connect("\0" + name[1:])
                            taken.send(b"not for you")
                    except OSError:
                        pass
    server = os.fork()
    if server == 0:
        for _ in range(100):
            conn, _ = listener.accept()
            conn.sendall(conn.recv(100))
            conn.close()
        os._exit(0)
    right = 0
    for n in range(100):
        with socket.create_connection(listener.getsockname()) as conn:
            conn.sendall(b"%d" % n)
            right += conn.recv(100) == b"%d" % n
    os.kill(thief, signal.SIGKILL)
    os.waitpid(thief, 0)
    print(f"{right} of 100", os.waitpid(server, 0)[1])


def rivals(times):
    """One thread copies a connection while another closes it, after shorter and longer moments. A copy that was made is a TCP
    connection with the names that it had, and a later connection is nothing to it."""
    listener = listening()
    ways = [os.dup, lambda fd: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3), lambda fd: os.dup2(fd, 200)]
    libc = ctypes.CDLL(None)
    libc.fdopen.restype = ctypes.c_void_p

    def as_file(fd):
        file = ctypes.c_void_p(libc.fdopen(fd, b"r+"))
        return lambda: libc.fclose(file)

    def as_range(fd):
        return lambda: libc.close_range(fd, fd, 0)

    def as_last(fd):
        return lambda: libc.closefrom(fd)

    closing = [lambda fd: lambda: os.close(fd), as_file]
    # Not in every C library.
    closing += [way for way, name in ((as_range, "close_range"), (as_last, "closefrom")) if hasattr(libc, name)]
    meet = threading.Barrier(2)
    todo = []
    copies = []

    def copy():
        for n in range(times):
            meet.wait()
            try:
                copies.append(ways[n % len(ways)](todo[n]))
            except OSError:
                copies.append(None)
            meet.wait()

    def pair():
        # Accepted in a thread of its own, so that it is moved; nothing else may get a number during the race.
        accepted = []
        accepting = threading.Thread(target=lambda: accepted.append(listener.accept()[0]))
        accepting.start()
        conn = socket.create_connection(listener.getsockname())
        accepting.join()
        return conn, accepted[0]

    thread = threading.Thread(target=copy)
    thread.start()
    wrong = 0
    for n in range(times):
        conn, peer = pair()
        name = conn.getsockname()
        fd = conn.detach()
        way = closing[n % 7 % len(closing)]
        if way is as_last:
            # Above everything else that must stay open.
            low, fd = fd, os.dup2(fd, 1000)
            os.close(low)
        todo.append(fd)
        close = way(fd)
        meet.wait()
        for _ in range(n % 50):
            pass
        close()
        meet.wait()
        later, its_peer = pair()
        if copies[n] is not None:
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=copies[n]) as made:
                wrong += made.getsockname() != name
                try:
                    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                except OSError:
                    wrong += 1
                made.sendall(b"x")
            wrong += peer.recv(2) != b"x"
        wrong += peer.recv(2) != b""
        wrong += later.getpeername() != listener.getsockname()
        later.sendall(b"y")
        wrong += its_peer.recv(2) != b"y"
        for sock in [later, its_peer, peer]:
            sock.close()
    thread.join()
    print(f"{times} times, {wrong} wrong")


def changes(port, number):
    """Changes the registration of a connection with epoll many times."""
    conn = socket.create_connection(("127.0.0.1", port))
    epoll = select.epoll()
    epoll.register(conn, select.EPOLLIN)
    for _ in range(number):
        epoll.modify(conn, select.EPOLLIN | select.EPOLLOUT)
    print(f"{number} changes")


def messages(number):
    """Exchanges messages by calls that pass structures: sendmsg, recvmsg, recvfrom and select."""
    listener = listening()
    child = os.fork()
    if child == 0:
        conn, _ = listener.accept()
        for _ in range(number):
            conn.sendmsg([conn.recvmsg(9)[0]])
        os._exit(0)
    conn = socket.create_connection(listener.getsockname())
    right = 0
    for n in range(number):
        conn.sendmsg([b"%d" % n])
        select.select([conn], [], [], 60)
        right += conn.recvfrom(9)[0] == b"%d" % n
    os.waitpid(child, 0)
    print(f"{right} messages")


def serve(port_file):
    """Answers one connection; with `ask`, for two programs that are started separately."""
    listener = listening()
    with open(port_file + ".new", "w") as file:
        file.write(str(listener.getsockname()[1]))
    os.rename(port_file + ".new", port_file)
    conn, _ = listener.accept()
    conn.sendall(conn.recv(100).upper())
    assert conn.recv(100) == b""


def ask(port_file):
    while not os.path.exists(port_file):
        time.sleep(0.01)
    with socket.create_connection(("127.0.0.1", int(open(port_file).read()))) as conn:
        conn.sendall(b"hello")
        print(conn.recv(100))


signal.alarm(200)
globals()[sys.argv[1]](*[int(word) if word.isdigit() else word for word in sys.argv[2:]])
