"""The channel of both programs: @MECHANISM@, whole messages, a deadline on every call."""
import os
import struct
@if stream seqpacket dgram
import socket
@end
@if pipe fifo
import select
@end
@if pipe
import subprocess
@end
@if fifo unix
import stat
@end
import sys
import time

LARGEST = @LARGEST@
DEADLINE_S = 2.0
PATIENCE_S = 30.0


class Idle(Exception):
    """No message began before the deadline; the channel may be kept."""
@if stream pipe fifo


class Channel:
@end
@if stream
    def __init__(self, sock):
        sock.settimeout(DEADLINE_S)
@end
@if nodelay
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
@end
@if stream
        self.sock = sock

    def close(self):
        self.sock.close()

    def _write(self, data, until):
        # A full channel makes the sender wait. The deadline covers the whole message.
        self.sock.sendall(data)

    def _read(self, most, until):
        self.sock.settimeout(max(until - time.monotonic(), 0.001))
        try:
            return self.sock.recv(most)
        finally:
            self.sock.settimeout(DEADLINE_S)
@end
@if pipe fifo
    def __init__(self, source, sink, process=None):
        self.source, self.sink, self.process = source, sink, process
        os.set_blocking(source, False)
        os.set_blocking(sink, False)

    def close(self):
        os.close(self.source)
        os.close(self.sink)
@end
@if pipe
        if self.process:
            try:  # The server ends when its standard input does; one that does not is killed.
                self.process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
@end
@if pipe fifo

    @staticmethod
    def _wait(fd, event, until):
        poll = select.poll()
        poll.register(fd, event)
        if not poll.poll(max(until - time.monotonic(), 0) * 1000):
            raise TimeoutError("the deadline passed")

    def _write(self, data, until):
        while data:
            try:
                data = data[os.write(self.sink, data):]
            except BlockingIOError:  # A full channel makes the sender wait.
                self._wait(self.sink, select.POLLOUT, until)

    def _read(self, most, until):
        while True:
            try:
                return os.read(self.source, most)
            except BlockingIOError:
                self._wait(self.source, select.POLLIN, until)
@end
@if stream pipe fifo

    def _exactly(self, count, until, begun):
        parts = bytearray()
        while len(parts) < count:
            try:
                part = self._read(count - len(parts), until)
            except TimeoutError:
                if begun or parts:  # The rest could not be told from the next message.
                    raise ConnectionError("the peer stopped within a message") from None
                raise Idle from None
            if not part:
                raise ConnectionError("the peer closed the connection")
            parts += part
        return bytes(parts)

    def send(self, message):
        if len(message) > LARGEST:
            raise ValueError(f"{len(message)} bytes are more than the largest message, {LARGEST}")
        self._write(struct.pack("<I", len(message)) + message, time.monotonic() + DEADLINE_S)

    def receive(self):
        until = time.monotonic() + DEADLINE_S
        (length,) = struct.unpack("<I", self._exactly(4, until, False))
        if length > LARGEST:
            raise ConnectionError(f"the peer announced {length} bytes; at most {LARGEST} are allowed")
        return self._exactly(length, until, True)
@end
@if seqpacket dgram


class Channel:
    def __init__(self, sock):
        sock.settimeout(DEADLINE_S)
        self.sock = sock

    def close(self):
        self.sock.close()

    def send(self, message):
        # An empty message cannot be told from the end of a connection.
        if not 0 < len(message) <= LARGEST:
            raise ValueError(f"{len(message)} bytes are not from 1 to {LARGEST}")
        self.sock.send(message)  # A full channel makes the sender wait.

    def receive(self):
        try:
            message = self.sock.recv(LARGEST + 1)
        except TimeoutError:
            raise Idle from None
        if not 0 < len(message) <= LARGEST:
            raise ConnectionError("the peer closed the connection, or sent too large a message")
        return message
@end
@if stream seqpacket dgram


def address_of(text):
@if unix
    return text
@end
@if inet
    host, port = text.rsplit(":", 1)
    return host, int(port)
@end
@if tipc
    # A service's name, TYPE:INSTANCE, is the same on every host.
    service, instance = text.split(":")
    return socket.TIPC_ADDR_NAME, int(service), int(instance), 0
@end


def new_socket():
    return socket.socket(socket.@FAMILY@, socket.@TYPE@, @PROTOCOL_PY@)


class Listener:
    def __init__(self, text):
        self.text, self.sock = text, new_socket()
@end
@if unix
        if os.path.exists(text):
            # A killed server leaves its path behind; a live one answers.
            with new_socket() as probe:
                try:
                    probe.connect(text)
                except ConnectionRefusedError:
                    if stat.S_ISSOCK(os.lstat(text).st_mode):
                        os.unlink(text)
                else:
                    raise SystemExit(f"{text}: another server is running")
@end
@if inet
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
@end
@if stream seqpacket dgram
        self.sock.bind(address_of(text))
@end
@if stream seqpacket
        self.sock.listen(64)

    def accept(self):
        return Channel(self.sock.accept()[0])
@end
@if dgram

    def accept(self):
        # Each client gets a socket of its own, which is connected to the client's, so that it receives from nobody
        # else: the server answers a greeting from it, and the client connects to the answer's source.
        while True:
            _, client = self.sock.recvfrom(1)
            sock = bound_socket()
            try:
                sock.connect(client)
                sock.send(b"\0")
                return Channel(sock)
            except OSError:
                sock.close()  # The client has gone meanwhile.
@end
@if stream seqpacket dgram

    def remove(self):
        self.sock.close()
@end
@if unix
        os.unlink(self.text)
@end
@if stream seqpacket


def connect(text):
    sock = new_socket()
    sock.settimeout(DEADLINE_S)
    try:
        sock.connect(address_of(text))
    except OSError:
        sock.close()
        raise
    return Channel(sock)
@end
@if dgram


def bound_socket():
    """A socket whose address the system chooses."""
    sock = new_socket()
@end
@if inetdgram unixdgram
    sock.bind(@ANY_PY@)
@end
@if dgram
    return sock


def connect(text):
    sock = bound_socket()
    sock.settimeout(DEADLINE_S)
    try:
        sock.sendto(b"\0", address_of(text))
        _, server = sock.recvfrom(1)
        sock.connect(server)
    except OSError:
        sock.close()
        raise
    return Channel(sock)
@end
@if pipe


class Listener:
    """The client starts the server, whose standard input and output are the two pipes."""

    def __init__(self, text):
        # Standard output is the channel: whatever else the program prints must not get into it.
        self.ends = [os.dup(0), os.dup(1)]
        os.dup2(2, 1)

    def accept(self):
        if not self.ends:
            time.sleep(1e6)  # There is one client; the program ends with it.
        ends, self.ends = self.ends, None
        return Channel(*ends)

    def remove(self):
        pass


def connect(text):
    process = subprocess.Popen("exec " + text, shell=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    with process.stdin as sink, process.stdout as source:
        return Channel(os.dup(source.fileno()), os.dup(sink.fileno()), process)
@end
@if fifo


def names_of(text, client):
    """A client creates two FIFOs named after its process, and sends its number to the server's. Both are removed as
    soon as the two processes have opened them, so nothing is left behind however a process ends."""
    return f"{text}.{client}.request", f"{text}.{client}.reply"


def remove(*names):
    for name in names:
        try:
            os.unlink(name)
        except FileNotFoundError:
            pass


class Listener:
    def __init__(self, text):
        self.text = text
        try:
            os.mkfifo(text, 0o600)
        except FileExistsError:
            pass
        # Open for writing as well: otherwise the end of each client would be the end of the FIFO.
        self.fd = os.open(text, os.O_RDWR | os.O_NOFOLLOW)
        found = os.fstat(self.fd)
        if not stat.S_ISFIFO(found.st_mode) or found.st_uid != os.geteuid():
            raise SystemExit(f"{text} exists and is not a FIFO of this user")

    def accept(self):
        while True:
            (client,) = struct.unpack("=i", os.read(self.fd, 4))
            names, ends = names_of(self.text, client), []
            try:
                ends.append(os.open(names[0], os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW))
                ends.append(os.open(names[1], os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW))
                os.write(ends[1], b"\0")
                return Channel(*ends)
            except OSError:
                for fd in ends:  # The client has gone meanwhile.
                    os.close(fd)
            finally:
                remove(*names)

    def remove(self):
        remove(self.text)


def connect(text):
    names, self, ends = names_of(text, os.getpid()), os.getpid(), []
    server = os.open(text, os.O_WRONLY | os.O_NONBLOCK)  # ENXIO: no server reads.
    remove(*names)
    try:
        for name in names:
            os.mkfifo(name, 0o600)
        # A FIFO can be opened for writing only while there is a reader.
        reader = os.open(names[0], os.O_RDONLY | os.O_NONBLOCK)
        try:
            ends = [os.open(names[1], os.O_RDONLY | os.O_NONBLOCK), os.open(names[0], os.O_WRONLY)]
            os.write(server, struct.pack("=i", self))
            Channel._wait(ends[0], select.POLLIN, time.monotonic() + DEADLINE_S)
            os.read(ends[0], 1)
        finally:
            os.close(reader)  # From here on only the server reads, so that its death is EPIPE.
        return Channel(*ends)
    except OSError:
        remove(*names)
        for fd in ends:
            os.close(fd)
        raise
    finally:
        os.close(server)
@end


def connected(text):
    """Connects; ends the program if nobody listens for PATIENCE_S seconds."""
    pause, end = 0.01, time.monotonic() + PATIENCE_S
    while True:
        try:
            return connect(text)
        except OSError as error:
            print(f"waiting for {text}: {error}", file=sys.stderr)
            if time.monotonic() > end:
                sys.exit(1)
        time.sleep(pause)
        pause = min(pause * 2, 0.5)
