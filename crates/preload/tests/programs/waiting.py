"""Two processes that answer each other, and wait in every way that there is: `waiting.py FAMILY [TIMES]`. Prints a line for each
way, which says what was observed."""

import ctypes
import errno
import os
import resource
import select
import signal
import socket
import struct
import sys
import time

LIBC = ctypes.CDLL(None, use_errno=True)
READABLE = select.POLLIN


class Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


def timespec(limit):
    return None if limit is None else ctypes.byref(Timespec(int(limit), round(limit % 1 * 1e9)))


def called(outcome):
    """The result of a call of the C library that waits, by the rules of Python."""
    if outcome < 0:
        code = ctypes.get_errno()
        raise InterruptedError if code == errno.EINTR else OSError(code, os.strerror(code))
    return outcome > 0


# Each waits until the connection is readable, for at most `limit` seconds, and returns whether it is.


def by_select(conn, limit):
    return bool(select.select([conn], [], [], limit)[0])


def by_pselect(conn, limit):
    words = (ctypes.c_ulong * 16)()
    words[conn.fileno() // 64] = 1 << conn.fileno() % 64
    return called(LIBC.pselect(conn.fileno() + 1, words, None, None, timespec(limit), None))


def by_poll(conn, limit):
    waiter = select.poll()
    waiter.register(conn, READABLE)
    return bool(waiter.poll(None if limit is None else limit * 1000))


def by_ppoll(conn, limit):
    entry = (ctypes.c_char * 8).from_buffer(bytearray(struct.pack("ihh", conn.fileno(), READABLE, 0)))
    return called(LIBC.ppoll(entry, ctypes.c_ulong(1), timespec(limit), None))


class Epoll:
    def __init__(self, flags=0, wait=None):
        self.flags, self.wait, self.instances = flags, wait, {}

    def __call__(self, conn, limit):
        if conn not in self.instances:
            self.instances[conn] = select.epoll()
            self.instances[conn].register(conn, select.EPOLLIN | self.flags)
        instance = self.instances[conn]
        if not self.wait:
            return bool(instance.poll(limit))
        return called(self.wait(instance.fileno(), (ctypes.c_char * 12)(), 1, timespec(limit), None))


def receive_after(wait):
    def receive(conn):
        assert wait(conn, None)
        return conn.recv(100)

    return receive


def by_readv(conn):
    parts = [bytearray(3), bytearray(97)]
    length = os.readv(conn.fileno(), parts)
    return b"".join(parts)[:length]


def by_recvmsg(conn):
    return conn.recvmsg(100, 100)[0]


def by_recv_into(conn):
    room = bytearray(100)
    return bytes(room[: conn.recv_into(room)])


WAITS = {
    "select": by_select,
    "pselect": by_pselect,
    "poll": by_poll,
    "ppoll": by_ppoll,
    "epoll": Epoll(),
    "epoll, edges": Epoll(select.EPOLLET),
    "epoll_pwait2": Epoll(wait=LIBC.epoll_pwait2),
}
RECEIVES = {
    "recv": lambda conn: conn.recv(100),
    "read": lambda conn: os.read(conn.fileno(), 100),
    "readv": by_readv,
    "recvmsg": by_recvmsg,
    "recvfrom": lambda conn: conn.recvfrom(100)[0],
    "recv_into": by_recv_into,
    "recv, all": lambda conn: conn.recv(8, socket.MSG_WAITALL),
    **{name: receive_after(wait) for name, wait in WAITS.items()},
}


def pair(family):
    if family == "socketpair":
        return socket.socketpair()
    if family == "plain tcp":
        # Too few descriptors for a connection to be moved.
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))
    listener = socket.socket(socket.AF_UNIX if family == "unix" else socket.AF_INET)
    if family == "unix":
        listener.bind("\0waiting-%d" % os.getpid())
    else:
        listener.bind(("127.0.0.1", 0))
    listener.listen()
    child = os.fork()
    if child == 0:
        conn = socket.socket(listener.family)
        conn.connect(listener.getsockname())
        answer(conn)
        os._exit(0)
    conn, _ = listener.accept()
    listener.close()
    return conn, None


def answer(conn):
    """Answers in the way that is asked for, until the connection ends."""
    while True:
        name = conn.recv(100).decode()
        if not name:
            return
        conn.send(b"ready")
        while name == "a signal" and (asked := conn.recv(8)) != b"the last":
            if asked == b"a signal":
                time.sleep(0.0001)
                os.kill(os.getppid(), signal.SIGUSR1)
                time.sleep(0.02)
            conn.send(b"answered")
        if name == "a signal":
            continue
        while (message := RECEIVES[name](conn)) != b"the last":
            assert len(message) == 8, message
            conn.send(message)
        conn.send(message)


def polled(conn):
    entry = (ctypes.c_char * 8).from_buffer(bytearray(struct.pack("ihh", conn.fileno(), READABLE, 0)))
    return called(LIBC.poll(entry, ctypes.c_ulong(1), -1))


def selected(conn):
    words = (ctypes.c_ulong * 16)()
    words[conn.fileno() // 64] = 1 << conn.fileno() % 64
    return called(LIBC.select(conn.fileno() + 1, words, None, None, None))


def received(conn):
    return called(LIBC.recv(conn.fileno(), (ctypes.c_char * 8)(), ctypes.c_ulong(8), socket.MSG_PEEK))


def interruptions(conn, wait, times):
    """How many of the waits a signal interrupts that comes soon after they begin."""
    conn.send(b"a signal")
    assert conn.recv(100) == b"ready"
    count = 0
    for n in range(times * 10):
        # Quick answers make it worth looking for them.
        conn.send(b"a signal" if n % 10 == 9 else b"answer !")
        try:
            wait(conn)
        except InterruptedError:
            count += 1
        assert conn.recv(8, socket.MSG_WAITALL) == b"answered"
    conn.send(b"the last")
    return count


def guard(seconds):
    """Ends this program if it lasts longer: its own timers are part of what is observed."""
    guarded = os.getpid()
    if os.fork() == 0:
        LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        time.sleep(seconds)
        print(f"waiting.py lasts longer than {seconds} s", file=sys.stderr, flush=True)
        os.kill(guarded, signal.SIGKILL)
        os._exit(1)


def main(family, times):
    guard(300)
    conn, other = pair(family)
    if other and os.fork() == 0:
        conn.close()
        answer(other)
        os._exit(0)
    if other:
        other.close()
    for name, receive in RECEIVES.items():
        conn.send(name.encode())
        assert conn.recv(100) == b"ready"
        wrong = 0
        for n in range(times):
            conn.send(message := b"%08d" % n if n + 1 < times else b"the last")
            wrong += receive(conn) != message
        print(f"{name}: {times} answers, {wrong} wrong")
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    for wait in (polled, selected, received, lambda conn: WAITS["epoll_pwait2"](conn, None)):
        print(f"signals interrupt {wait.__name__}: {interruptions(conn, wait, 10) > 2}")
    signal.siginterrupt(signal.SIGUSR1, False)
    print(f"calls that are restarted: {interruptions(conn, received, 10)} interrupted")
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 60, 0))
    # On a loaded machine, some signals come before the call.
    print(f"calls with a limit of time are not: {any(interruptions(conn, received, 100) > 97 for _ in range(3))}")
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))
    for name, wait in WAITS.items():
        conn.settimeout(None)
        begin = time.monotonic()
        there, lasted = wait(conn, 0.03), time.monotonic() - begin
        print(f"{name}: nothing comes: {there}, {lasted >= 0.0299}; at once: {wait(conn, 0)}")
    # Calls that Python does not repeat: a signal interrupts them.
    for name in ("pselect", "ppoll", "epoll_pwait2"):
        signal.setitimer(signal.ITIMER_REAL, 0.06)
        try:
            print(f"{name}: {WAITS[name](conn, 5)}")
        except InterruptedError:
            print(f"{name}: interrupted")
    conn.settimeout(0.02)
    try:
        conn.recv(1)
    except TimeoutError:
        print("recv: a limit of time")
    conn.setblocking(False)
    try:
        conn.recv(1)
    except BlockingIOError:
        print("recv: nothing, without blocking")
    for name, call in (
        ("poll", lambda: LIBC.poll(ctypes.c_void_p(16), ctypes.c_ulong(1), 0)),
        ("readv", lambda: LIBC.readv(conn.fileno(), ctypes.c_void_p(16), 1)),
    ):
        call()
        print(f"{name} of a bad pointer: {os.strerror(ctypes.get_errno())}")
    for seconds, nanoseconds in ((-1, 0), (0, 1_000_000_000)):
        entry = struct.pack("ihh", conn.fileno(), READABLE, 0)
        LIBC.ppoll(entry, ctypes.c_ulong(1), ctypes.byref(Timespec(seconds, nanoseconds)), None)
        print("ppoll: refuses the limit:", ctypes.get_errno() == errno.EINVAL)
    conn.close()
    os.wait()


main(sys.argv[1], int(sys.argv[2]))
