"""The channel of both programs: @MECHANISM@, whole messages, a deadline on every call."""
import os
import socket
import struct

FAMILY = socket.@FAMILY@
TYPE = socket.@TYPE@
STREAM = TYPE == socket.SOCK_STREAM  # A byte stream needs a length before each message.
NODELAY = @NODELAY_PY@
LARGEST = @LARGEST@
DEADLINE_S = 2.0


def address(text):
    """A path for UNIX sockets, HOST:PORT for TCP."""
    if FAMILY == socket.AF_UNIX:
        return text
    host, port = text.rsplit(":", 1)
    return host, int(port)


def set_up(sock):
    # A send that finds no room waits, which provides back-pressure. No call waits longer than the deadline.
    sock.settimeout(DEADLINE_S)
    if NODELAY:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def send(sock, message):
    if len(message) > LARGEST:
        raise ValueError(f"{len(message)} bytes are more than the largest message, {LARGEST}")
    sock.sendall(struct.pack("<I", len(message)) + message if STREAM else message)


def _exactly(sock, count):
    parts = bytearray()
    while len(parts) < count:
        part = sock.recv(count - len(parts))
        if not part:
            raise ConnectionError("the peer closed the connection")
        parts += part
    return bytes(parts)


def receive(sock):
    if STREAM:
        (length,) = struct.unpack("<I", _exactly(sock, 4))
        if length > LARGEST:
            raise ConnectionError(f"the peer announced {length} bytes; at most {LARGEST} are allowed")
        return _exactly(sock, length)
    message = sock.recv(LARGEST)
    if not message:
        raise ConnectionError("the peer closed the connection")
    return message


def listen(text):
    sock = socket.socket(FAMILY, TYPE)
    if FAMILY == socket.AF_UNIX and os.path.exists(text):
        # A killed server leaves its path behind; a live one answers.
        probe = socket.socket(FAMILY, TYPE)
        try:
            probe.connect(text)
        except ConnectionRefusedError:
            os.unlink(text)
        else:
            raise SystemExit(f"{text}: another server is running")
        finally:
            probe.close()
    elif FAMILY != socket.AF_UNIX:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(address(text))
    sock.listen()
    return sock
