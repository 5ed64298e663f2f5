"""What scenarios of programs that use a connection are made of."""

import ctypes
import errno
import os
import select

SCENARIOS = {}


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


# Those that only run when they are named.
APART = {}


def apart(function):
    APART[function.__name__] = function
    return function


class Steps:
    """Two pipes by which the ends wait for each other, past the connection."""

    def __init__(self):
        self.pipes = [os.pipe(), os.pipe()]
        self.signals = os.pipe()
        os.set_blocking(self.signals[1], False)

    def tell(self, end):
        os.write(self.pipes[1 - end][1], b".")

    def wait(self, end):
        os.read(self.pipes[end][0], 1)

    def signal(self):
        """Waits until a signal has come to the other end, whose call in `interrupted` goes on."""
        os.read(self.signals[0], 1)

    def forget(self):
        """Signals that have come are not those which the other end will wait for."""
        while select.select([self.signals[0]], [], [], 0)[0]:
            os.read(self.signals[0], 4096)


def everything(sock):
    got = b""
    while True:
        part = sock.recv(65536)
        if not part:
            return got
        got += part


def attempt(what, *args):
    try:
        return what(*args)
    except OSError as error:
        return errno.errorcode[error.errno]


def in_order(data):
    return data == bytes(n % 251 for n in range(len(data)))


def pattern(length):
    return bytes(n % 251 for n in range(length))


class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_char_p), ("len", ctypes.c_size_t)]


class Message(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_void_p), ("namelen", ctypes.c_uint), ("parts", ctypes.POINTER(Part)), ("count", ctypes.c_size_t),
        ("control", ctypes.c_void_p), ("controllen", ctypes.c_size_t), ("flags", ctypes.c_long), ("done", ctypes.c_uint), ("pad", ctypes.c_uint),
    ]


LIBC = ctypes.CDLL(None, use_errno=True)


def messages(buffers):
    """Structures for sendmmsg and recvmmsg, one per buffer."""
    parts = [(Part * 1)(Part(ctypes.cast(buffer, ctypes.c_char_p), len(buffer))) for buffer in buffers]
    return (Message * len(buffers))(*(Message(parts=part, count=1) for part in parts)), parts


def many(call, sock, buffers, *more):
    """What sendmmsg or recvmmsg returns, the error, and the length of each message."""
    vector, parts = messages([ctypes.create_string_buffer(b, len(b)) if isinstance(b, bytes) else b for b in buffers])
    done = getattr(LIBC, call)(sock.fileno(), vector, len(buffers), *more)
    return done, errno.errorcode[ctypes.get_errno()] if done < 0 else None, [m.done for m in vector[: max(done, 0)]]


def events(sock, *, limit=0):
    poll = select.poll()
    poll.register(sock, select.POLLIN | select.POLLOUT)
    return [event & (select.POLLIN | select.POLLOUT) for _, event in poll.poll(limit)]
