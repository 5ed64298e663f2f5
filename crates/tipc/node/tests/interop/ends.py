"""A common non-blocking interface to sockets of the kernel and of the node in user space. Both return the same values and raise OSError."""

import os
import select
import socket as S
import struct

RANGE, SERVICE, SOCKET = S.TIPC_ADDR_NAMESEQ, S.TIPC_ADDR_NAME, S.TIPC_ADDR_ID
KINDS = {"stream": S.SOCK_STREAM, "seqpacket": S.SOCK_SEQPACKET, "rdm": S.SOCK_RDM, "dgram": S.SOCK_DGRAM}
ERRINFO, RETDATA = 1, 2
GROUP_JOIN = 135
# A port not used by any socket.
DEAD = 4242


class Kernel:
    """Non-blocking sockets of the kernel."""

    def __init__(self):
        probe = S.socket(S.AF_TIPC, S.SOCK_RDM)
        self.node = probe.getsockname()[1]

    def open(self, kind):
        s = S.socket(S.AF_TIPC, KINDS[kind])
        s.setblocking(False)
        return s

    def address(self, a):
        return (SOCKET, self.node if a[2] == "own" else a[2], a[1], 0) if a[0] == SOCKET else a

    def port(self, s):
        return s.getsockname()[2]

    def bind(self, s, service, lower, upper, scope=2):
        s.bind((RANGE, service, lower, upper, scope))

    def unbind(self, s, service, lower, upper, scope=2):
        s.bind((RANGE, service, lower, upper, -scope))

    def listen(self, s):
        s.listen(4)

    def accept(self, s):
        # Python's own accept() checks its deadline first.
        fd, _ = s._accept()
        new = S.socket(S.AF_TIPC, s.type, 0, fileno=fd)
        new.setblocking(False)
        return new

    def connect(self, s, a):
        s.connect(self.address(a))

    def connect_error(self, s):
        e = s.getsockopt(S.SOL_SOCKET, S.SO_ERROR)
        if e:
            raise OSError(e, os.strerror(e))

    def send(self, s, data, a=None):
        return s.send(data) if a is None else s.sendto(data, self.address(a))

    def recv(self, s, limit=70000):
        return s.recv(limit)

    def recv_returned(self, s):
        data, ancillary, _, sender = s.recvmsg(70000, 2000)
        found = {kind: text for _, kind, text in ancillary}
        error = struct.unpack("=II", found[ERRINFO])[0] if ERRINFO in found else 0
        return error, found.get(RETDATA, data), sender[2] == DEAD

    def shutdown(self, s):
        s.shutdown(S.SHUT_RDWR)

    def peer(self, s):
        s.getpeername()

    def close(self, s):
        s.close()

    def ready(self, s):
        p = select.poll()
        p.register(s, select.POLLIN | select.POLLOUT)
        events = dict(p.poll(0)).get(s.fileno(), 0)
        return [int(bool(events & bit)) for bit in (select.POLLIN, select.POLLOUT, select.POLLHUP)]

    def set(self, s, option, value):
        if value is None:
            s.setsockopt(S.SOL_TIPC, option, None, 0)
        else:
            s.setsockopt(S.SOL_TIPC, option, struct.pack("=I", value))

    def get(self, s, option):
        return struct.unpack("=I", s.getsockopt(S.SOL_TIPC, option, 4))[0]

    def join(self, s, group, instance, scope=2, flags=0):
        s.setsockopt(S.SOL_TIPC, GROUP_JOIN, struct.pack("=4I", group, instance, scope, flags))


class User:
    """Sockets of the node in user space."""

    def __init__(self, control):
        self.control = control
        self.sockets = set()

    def open(self, kind):
        s = int(self.control("open", kind)[0])
        self.sockets.add(s)
        return s

    def address(self, a):
        if a is None:
            return ("-",)
        return (SOCKET, a[1], self.control.node if a[2] == "own" else a[2], 0) if a[0] == SOCKET else a

    def port(self, s):
        return s

    def bind(self, s, service, lower, upper, scope=2):
        self.control("bind", s, service, lower, upper, scope)

    def unbind(self, s, service, lower, upper, scope=2):
        self.control("unbind", s, service, lower, upper, scope)

    def listen(self, s):
        self.control("listen", s)

    def accept(self, s):
        accepted = int(self.control("accept", s)[0])
        self.sockets.add(accepted)
        return accepted

    def connect(self, s, a):
        self.control("connect", s, *self.address(a))

    def connect_error(self, s):
        self.control("error", s)

    def send(self, s, data, a=None):
        text = "%dx%s" % (len(data), data[:1].hex()) if len(set(data)) == 1 else data.hex()
        return int(self.control("send", s, *self.address(a), text)[0])

    def recv(self, s, limit=20000):
        m = self.control("recv", s, limit)
        return b"" if int(m[3]) else bytes.fromhex(m[5])

    def recv_returned(self, s):
        m = self.control("recv", s, 70000)
        return int(m[3]), bytes.fromhex(m[5]), int(m[0]) == DEAD

    def shutdown(self, s):
        self.control("shutdown", s)

    def peer(self, s):
        self.control("peer", s)

    def close(self, s):
        self.sockets.discard(s)
        self.control("close", s)

    def close_all(self):
        for s in list(self.sockets):
            self.close(s)

    def ready(self, s):
        return [int(bit) for bit in self.control("ready", s)]

    def set(self, s, option, value):
        self.control("setopt", s, option, "-" if value is None else value)

    def get(self, s, option):
        return int(self.control("getopt", s, option)[0])

    def join(self, s, group, instance, scope=2, flags=0):
        self.control("join", s, group, instance, scope, flags)
