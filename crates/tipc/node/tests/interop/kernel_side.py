"""The kernel's end of the interoperation test: plain AF_TIPC, run in a guest. Prints one line per check that held; any other
outcome is an exception and a status other than 0."""

import ctypes
import errno
import os
import socket as S
import struct
import sys
import zlib

RANGE, SERVICE, SOCKET = S.TIPC_ADDR_NAMESEQ, S.TIPC_ADDR_NAME, S.TIPC_ADDR_ID
PATIENCE = 200
STREAM_BYTES = int(sys.argv[2]) if len(sys.argv) > 2 else 0
PUBLISHED, WITHDRAWN = 1, 2


def make(kind):
    s = S.socket(S.AF_TIPC, kind)
    s.settimeout(PATIENCE)
    return s


def held(what):
    print("held:", what, flush=True)


class Watch:
    """A subscription at the topology service of this node or of another."""

    def __init__(self, service, node=0):
        self.s = S.socket(S.AF_TIPC, S.SOCK_SEQPACKET)
        # Python's own connect cannot specify the node that looks the service up.
        address = struct.pack("=HBbIII", S.AF_TIPC, SERVICE, 0, 1, 1, node)
        assert ctypes.CDLL(None).connect(self.s.fileno(), address, len(address)) == 0
        self.s.settimeout(PATIENCE)
        self.s.send(struct.pack("=5I8s", service, 0, 0xFFFFFFFF, 0xFFFFFFFF, 1, b"interop!"))

    def wait(self, event):
        while True:
            kind, lower, upper, port, node = struct.unpack("=5I", self.s.recv(100)[:20])
            if kind == event:
                return lower, upper, port, node


def read_all(s, count):
    data = bytearray()
    while len(data) < count:
        part = s.recv(min(65536, count - len(data)))
        assert part, "the stream ended at %d of %d bytes" % (len(data), count)
        data += part
    return bytes(data)


def messages():
    client = make(S.SOCK_RDM)
    for size in (1, 100, 1400, 1429, 5000, 66000):
        payload = os.urandom(size)
        client.sendto(payload, (SERVICE, 19000, 1, 0))
        answer, sender = client.recvfrom(70000)
        assert answer == payload, "%d bytes came back as %d others" % (size, len(answer))
    held("RDM messages of 1 to 66000 bytes are returned complete")
    for n in range(300):
        client.sendto(b"%d" % n, (SERVICE, 19000, 1, 0))
    for n in range(300):
        assert client.recv(100) == b"%d" % n
    held("300 messages at once come back in order")
    return client, sender


def multicast():
    client = make(S.SOCK_RDM)
    client.sendto(b"replicast", (RANGE, 19003, 0, 99))
    assert client.recv(100) == b"replicast"
    client.setsockopt(S.SOL_TIPC, 133, None, 0)
    client.sendto(b"broadcast", (RANGE, 19003, 50, 60))
    assert client.recv(100) == b"broadcast"
    big = os.urandom(20000)
    client.sendto(big, (RANGE, 19003, 0, 99))
    assert client.recv(70000) == big
    held("multicast arrives by replicast, by broadcast, and in fragments by broadcast")


def refusals(client, address):
    s = make(S.SOCK_SEQPACKET)
    try:
        s.connect((SOCKET, address[1], 777, 0))
        raise AssertionError("connected to a port that does not exist")
    except OSError as e:
        assert e.errno == errno.ECONNREFUSED, e
    client.setsockopt(S.SOL_TIPC, S.TIPC_DEST_DROPPABLE, 0)
    client.sendto(b"return me", (SOCKET, address[1], 778, 0))
    _, ancillary, _, _ = client.recvmsg(100, 400)
    returned = {kind: data for _, kind, data in ancillary}
    assert struct.unpack("=II", returned[1]) == (2, 9) and returned[2] == b"return me", returned
    held("a refused connection and a returned message are reported as such")


def connection():
    s = make(S.SOCK_SEQPACKET)
    s.connect((SERVICE, 19002, 0, 0))
    for size in (1, 3000, 66000):
        payload = os.urandom(size)
        s.send(payload)
        assert s.recv(70000) == payload
    for n in range(200):
        s.send(b"%05d" % n + bytes(3000))
        if n % 10 == 9:
            for back in range(n - 9, n + 1):
                assert s.recv(70000)[:5] == b"%05d" % back
    held("a SEQPACKET connection carries messages of 1 to 66000 bytes both ways")
    s.shutdown(S.SHUT_RDWR)
    s.close()
    implied = make(S.SOCK_SEQPACKET)
    implied.sendto(b"first message in the request", (SERVICE, 19002, 0, 0))
    assert implied.recv(100) == b"first message in the request"
    held("a request that carries the first message is answered")


def streams():
    s = make(S.SOCK_STREAM)
    s.connect((SERVICE, 19005, 0, 0))
    block = os.urandom(1 << 20)
    s.sendall(struct.pack("!Q", STREAM_BYTES))
    crc, left = 0, STREAM_BYTES
    while left:
        part = block[: min(left, len(block))]
        s.sendall(part)
        crc, left = zlib.crc32(part, crc), left - len(part)
    assert struct.unpack("!I", read_all(s, 4))[0] == crc
    held("a stream of %d bytes arrives whole at the node in user space" % STREAM_BYTES)
    s = make(S.SOCK_STREAM)
    s.connect((SERVICE, 19006, 0, 0))
    s.sendall(struct.pack("!Q", STREAM_BYTES))
    crc, left = 0, STREAM_BYTES
    while left:
        part = s.recv(min(left, 1 << 16))
        assert part, "the stream ended with %d bytes missing" % left
        crc, left = zlib.crc32(part, crc), left - len(part)
    assert struct.unpack("!I", read_all(s, 4))[0] == crc
    assert s.recv(100) == b"", "the peer shuts the connection down at its end"
    held("a stream of %d bytes arrives whole at the kernel" % STREAM_BYTES)


def small_writes():
    """Many small writes make the kernel collect them and ask for an acknowledgement at once."""
    s = make(S.SOCK_STREAM)
    s.connect((SERVICE, 19005, 0, 0))
    s.sendall(struct.pack("!Q", 64 * 2000))
    crc = 0
    for n in range(2000):
        part = bytes([n & 255]) * 64
        s.sendall(part)
        crc = zlib.crc32(part, crc)
    assert struct.unpack("!I", read_all(s, 4))[0] == crc
    held("2000 small writes, which the kernel merges, arrive whole")


def being_served():
    watch = Watch(19010)
    watch.wait(PUBLISHED)
    server = make(S.SOCK_RDM)
    server.bind((RANGE, 19001, 5, 5, 2))
    text, address = server.recvfrom(100)
    assert text == b"hello from user space", text
    server.sendto(b"nice to meet you", address)
    text, address = server.recvfrom(100)
    assert text == b"thank you", text
    listener = make(S.SOCK_SEQPACKET)
    listener.listen(1)
    listener.bind((RANGE, 19004, 0, 0, 2))
    accepted, _ = listener.accept()
    accepted.settimeout(PATIENCE)
    assert accepted.recv(100) == b"connected from user space"
    accepted.send(b"welcome")
    assert accepted.recv(100) == b"", "the peer shuts down once it was welcomed"
    held("the node in user space finds the kernel's services, sends to one and connects to another")


def names():
    control = make(S.SOCK_RDM)
    watch = Watch(19020)
    control.sendto(b"bind", (SERVICE, 19008, 0, 0))
    assert watch.wait(PUBLISHED)[:2] == (3, 8)
    control.sendto(b"unbind", (SERVICE, 19008, 0, 0))
    assert watch.wait(WITHDRAWN)[:2] == (3, 8)
    held("bindings come and go over the broadcast link")


def topology(node):
    watch = Watch(19000, node)
    assert watch.wait(PUBLISHED)[3] == node
    assert Watch(2, node).wait(PUBLISHED)[3] == node
    bound = make(S.SOCK_RDM)
    watch = Watch(19030, node)
    bound.bind((RANGE, 19030, 1, 9, 2))
    assert watch.wait(PUBLISHED)[:2] == (1, 9)
    bound.close()
    assert watch.wait(WITHDRAWN)[:2] == (1, 9)
    held("the topology service of the node in user space answers the kernel")


def await_service(event):
    Watch(19000).wait(event)
    held("service " + ("found" if event == PUBLISHED else "gone"))


def watch_loss():
    watch = Watch(19000)
    watch.wait(PUBLISHED)
    held("service found")
    watch.wait(WITHDRAWN)
    held("service gone")
    watch.wait(PUBLISHED)
    held("service found again")
    messages()


if sys.argv[1] == "all":
    await_service(PUBLISHED)
    messages_client, messages_server = messages()
    multicast()
    refusals(messages_client, messages_server)
    connection()
    small_writes()
    streams()
    being_served()
    names()
    topology(messages_server[1])
    print("all checks held", flush=True)
elif sys.argv[1] == "messages":
    await_service(PUBLISHED)
    messages()
    print("all checks held", flush=True)
elif sys.argv[1] == "streams":
    await_service(PUBLISHED)
    streams()
    print("all checks held", flush=True)
elif sys.argv[1] == "watch-loss":
    watch_loss()
    print("all checks held", flush=True)
