"""The kernel's end of the test of two links: traffic of every kind, both ways and without a pause, while the test cuts one link after
the other. It ends when the file given as argument appears; then every message must have come once and in order, and contact must never have
been lost."""

import os
import socket as S
import struct
import sys
import threading
import time
import zlib

RANGE, SERVICE = S.TIPC_ADDR_NAMESEQ, S.TIPC_ADDR_NAME
STOP = sys.argv[1]
PATIENCE = 200
STREAM_BYTES = 400_000
counts = {}
failures = []


def make(kind):
    s = S.socket(S.AF_TIPC, kind)
    s.settimeout(PATIENCE)
    return s


def stopped():
    return os.path.exists(STOP) or failures


def read_all(s, count):
    data = bytearray()
    while len(data) < count:
        part = s.recv(min(65536, count - len(data)))
        assert part, "a stream ended at %d of %d bytes" % (len(data), count)
        data += part
    return bytes(data)


def datagrams():
    s = make(S.SOCK_RDM)
    number = 0
    while not stopped():
        for n in range(number, number + 20):
            s.sendto(struct.pack("!I", n) + bytes(n % 3000), (SERVICE, 19000, 1, 0))
        for n in range(number, number + 20):
            answer = s.recv(70000)
            got = struct.unpack("!I", answer[:4])[0]
            assert got == n and len(answer) == 4 + n % 3000, "%d came instead of %d" % (got, n)
        number += 20
        time.sleep(0.005)
    return number


def connection():
    s = make(S.SOCK_SEQPACKET)
    s.connect((SERVICE, 19002, 0, 0))
    number = 0
    while not stopped():
        for n in range(number, number + 10):
            s.send(struct.pack("!I", n) + bytes(n % 7000))
        for n in range(number, number + 10):
            answer = s.recv(70000)
            got = struct.unpack("!I", answer[:4])[0]
            assert got == n and len(answer) == 4 + n % 7000, "%d came instead of %d" % (got, n)
        number += 10
        time.sleep(0.005)
    return number


def stream_out():
    block = os.urandom(STREAM_BYTES)
    crc = zlib.crc32(block)
    rounds = 0
    while not stopped():
        s = make(S.SOCK_STREAM)
        s.connect((SERVICE, 19005, 0, 0))
        s.sendall(struct.pack("!Q", STREAM_BYTES))
        for at in range(0, STREAM_BYTES, 20_000):
            s.sendall(block[at : at + 20_000])
            time.sleep(0.002)
        assert struct.unpack("!I", read_all(s, 4))[0] == crc, "a stream to user space was damaged"
        s.close()
        rounds += 1
    return rounds


def stream_in():
    rounds = 0
    while not stopped():
        s = make(S.SOCK_STREAM)
        s.connect((SERVICE, 19006, 0, 0))
        s.sendall(struct.pack("!Q", STREAM_BYTES))
        data = read_all(s, STREAM_BYTES)
        crc = struct.unpack("!I", read_all(s, 4))[0]
        assert crc == zlib.crc32(data), "a stream from user space was damaged"
        s.close()
        rounds += 1
        time.sleep(0.05)
    return rounds


def run(name, work):
    try:
        counts[name] = work()
    except Exception as why:
        failures.append("%s: %r" % (name, why))


watch = S.socket(S.AF_TIPC, S.SOCK_SEQPACKET)
watch.settimeout(PATIENCE)
watch.connect((SERVICE, 1, 1, 0))
watch.send(struct.pack("=5I8s", 19006, 0, 0xFFFFFFFF, 0xFFFFFFFF, 1, b"interop!"))
assert struct.unpack("=I", watch.recv(100)[:4])[0] == 1
print("held: service found", flush=True)
works = [("datagrams a", datagrams), ("datagrams b", datagrams), ("messages a", connection),
         ("messages b", connection), ("streams out", stream_out), ("streams in", stream_in)]
threads = [threading.Thread(target=run, args=work) for work in works]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
watch.setblocking(False)
try:
    failures.append("contact was lost: %r" % watch.recv(100))
except BlockingIOError:
    pass
assert not failures, failures
assert all(count > 0 for count in counts.values()), counts
print("held: %r" % counts, flush=True)
print("all checks held", flush=True)
