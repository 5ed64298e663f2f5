"""Random sequences of calls on the TIPC sockets of one process, and their results: a kernel and a tipcd must print the same.

    sequences.py FIRST COUNT [LENGTH]     the sequences whose seeds are FIRST to FIRST + COUNT - 1, with LENGTH calls each (default 20)
    sequences.py compare KERNELS OURS     compares two outputs; prints the shortest sequence with a difference that is not listed in docs/TIPC-CONFORMANCE.md

A sequence is a function of its seed, and of which of its calls gave it sockets: after the first result that differs, the rest is not compared. A line has the number of the sequence and of the call, the
call, and its result. All sockets are non-blocking, so that nothing depends on time. Numbers that differ from run to run (ports, nodes)
are printed as the socket that has them.
"""

import array
import errno
import fcntl
import random
import select
import socket as S
import struct
import sys
import termios

SOL_TIPC = 271
IMPORTANCE, SRC_DROPPABLE, DEST_DROPPABLE, CONN_TIMEOUT, RECVQ_DEPTH, RECVQ_USED = 127, 128, 129, 130, 132, 137
KINDS = {"STREAM": S.SOCK_STREAM, "SEQPACKET": S.SOCK_SEQPACKET, "RDM": S.SOCK_RDM, "DGRAM": S.SOCK_DGRAM}
EVENTS = [("IN", select.POLLIN), ("PRI", select.POLLPRI), ("OUT", select.POLLOUT), ("ERR", select.POLLERR), ("HUP", select.POLLHUP),
          ("RDNORM", select.POLLRDNORM), ("RDBAND", select.POLLRDBAND), ("WRNORM", select.POLLWRNORM), ("WRBAND", select.POLLWRBAND), ("RDHUP", select.POLLRDHUP)]
EVERY = sum(bit for _, bit in EVENTS)
SERVICE = 20000
# The most sockets that a sequence has open.
SOCKETS = 5


class Sequence:
    """The sockets of one sequence, and its source of random choices."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        # Services of other sequences may still be bound while their sockets close.
        self.service = SERVICE + seed % 4000
        self.sockets, self.names, self.known, self.count = [], [], {}, 0

    def add(self, one):
        one.setblocking(False)
        self.known[one.getsockname()[2]] = self.count
        self.sockets.append(one)
        self.names.append(self.count)
        self.count += 1
        return self.count - 1

    def who(self, address):
        """An address without the numbers of this run."""
        if not address:
            return address
        kind, *rest = address
        if kind == S.TIPC_ADDR_ID:
            port = [self.known[number] for number in rest if number in self.known]
            return "socket %s" % (port[0] if port else "?")
        return (kind,) + tuple(number - self.service if number >= SERVICE else number for number in rest)

    def name(self):
        """A random address."""
        r = self.random
        instance = r.randrange(3)
        what = r.randrange(10)
        if what < 5:
            return "name %d" % instance, (S.TIPC_ADDR_NAME, self.service, instance, 0, S.TIPC_CLUSTER_SCOPE)
        if what < 7:
            upper = instance + r.randrange(2)
            return "range %d-%d" % (instance, upper), (S.TIPC_ADDR_NAMESEQ, self.service, instance, upper, S.TIPC_CLUSTER_SCOPE)
        if what < 8:
            return "nobody", (S.TIPC_ADDR_NAME, self.service + 4000, 1, 0, S.TIPC_CLUSTER_SCOPE)
        target = r.randrange(len(self.sockets))
        return "socket %d" % self.names[target], self.sockets[target].getsockname()

    def one(self):
        return self.random.randrange(len(self.sockets))

    def size(self):
        return self.random.choice([0, 1, 5, 40, 1000, 66000, 66001])

    # The calls. Each returns its text and a function that makes it.

    def socket(self):
        kind = self.random.choice(list(KINDS))
        return "socket %s" % kind, lambda: self.add(S.socket(S.AF_TIPC, KINDS[kind]))

    def socketpair(self):
        kind = self.random.choice(list(KINDS))
        return "socketpair %s" % kind, lambda: [self.add(end) for end in S.socketpair(S.AF_TIPC, KINDS[kind])]

    def bind(self):
        n, (text, address) = self.one(), self.name()
        scope = self.random.choice([S.TIPC_CLUSTER_SCOPE, S.TIPC_NODE_SCOPE, -S.TIPC_CLUSTER_SCOPE, -S.TIPC_NODE_SCOPE])
        return "bind %d %s scope %d" % (self.names[n], text, scope), lambda: self.sockets[n].bind(address[:4] + (scope,))

    def connect(self):
        n, (text, address) = self.one(), self.name()
        return "connect %d %s" % (self.names[n], text), lambda: self.sockets[n].connect(address)

    def listen(self):
        n = self.one()
        return "listen %d" % self.names[n], lambda: self.sockets[n].listen(4)

    def accept(self):
        n = self.one()

        def call():
            new, address = self.sockets[n].accept()
            return self.add(new), self.who(address)

        return "accept %d" % self.names[n], call

    def send(self):
        n, size = self.one(), self.size()
        return "send %d %d" % (self.names[n], size), lambda: self.sockets[n].send(bytes([self.names[n]]) * size)

    def sendto(self):
        n, size, (text, address) = self.one(), self.size(), self.name()
        return "sendto %d %d %s" % (self.names[n], size, text), lambda: self.sockets[n].sendto(bytes([self.names[n]]) * size, address)

    def receive(self):
        n, size = self.one(), self.random.choice([0, 1, 5, 66000])
        flags = self.random.choice([0, 0, S.MSG_PEEK, S.MSG_TRUNC, S.MSG_WAITALL, S.MSG_PEEK | S.MSG_TRUNC])

        def call():
            data, address = self.sockets[n].recvfrom(size, flags)
            return len(data), sorted(set(data)), self.who(address)

        return "recvfrom %d %d flags %#x" % (self.names[n], size, flags), call

    def recvmsg(self):
        n, size = self.one(), self.random.choice([1, 5, 66000])
        flags = self.random.choice([0, 0, S.MSG_PEEK])

        def call():
            data, control, flags_after, address = self.sockets[n].recvmsg(size, 2000, flags)
            return len(data), [self.control(*one) for one in control], hex(flags_after), self.who(address)

        return "recvmsg %d %d flags %#x" % (self.names[n], size, flags), call

    def control(self, level, kind, data):
        if kind == 2:
            return "returned", len(data), sorted(set(data))
        numbers = [n - self.service if n >= SERVICE else n for n in struct.unpack("%dI" % (len(data) // 4), data)]
        return {1: "error", 3: "service"}.get(kind, kind), numbers

    def poll(self):
        n = self.one()
        wanted = self.random.choice([EVERY, EVERY, select.POLLIN, select.POLLOUT, EVERY & ~select.POLLOUT])

        def call():
            poll = select.poll()
            poll.register(self.sockets[n], wanted)
            got = dict(poll.poll(0)).get(self.sockets[n].fileno(), 0)
            return "+".join(name for name, bit in EVENTS if got & bit)

        return "poll %d %#x" % (self.names[n], wanted), call

    def names_of(self):
        n, which = self.one(), self.random.choice(["getsockname", "getpeername"])
        return "%s %d" % (which, self.names[n]), lambda: self.who(getattr(self.sockets[n], which)())

    def getsockopt(self):
        n = self.one()
        level, name = self.random.choice(
            [(SOL_TIPC, option) for option in (IMPORTANCE, SRC_DROPPABLE, DEST_DROPPABLE, CONN_TIMEOUT, RECVQ_DEPTH)]
            + [(S.SOL_SOCKET, option) for option in (S.SO_ERROR, S.SO_TYPE, S.SO_ACCEPTCONN, S.SO_DOMAIN, S.SO_PROTOCOL)]
        )
        return "getsockopt %d %d %d" % (self.names[n], level, name), lambda: self.sockets[n].getsockopt(level, name)

    def setsockopt(self):
        n, name = self.one(), self.random.choice([IMPORTANCE, SRC_DROPPABLE, DEST_DROPPABLE, CONN_TIMEOUT, RECVQ_DEPTH])
        value = 8000 if name == CONN_TIMEOUT else self.random.choice([0, 1, 3, 4])
        return "setsockopt %d %d %d" % (self.names[n], name, value), lambda: self.sockets[n].setsockopt(SOL_TIPC, name, value)

    def shutdown(self):
        n = self.one()
        how = self.random.choice([S.SHUT_RD, S.SHUT_WR, S.SHUT_RDWR, S.SHUT_RDWR, S.SHUT_RDWR])
        return "shutdown %d %d" % (self.names[n], how), lambda: self.sockets[n].shutdown(how)

    def close(self):
        n = self.one()

        def call():
            self.sockets.pop(n).close()
            self.names.pop(n)

        return "close %d" % self.names[n], call

    def ioctl(self):
        n = self.one()

        def call():
            number = array.array("i", [-1])
            fcntl.ioctl(self.sockets[n], termios.FIONREAD, number)
            return number[0]

        return "ioctl %d FIONREAD" % self.names[n], call

    CALLS = (
        [socket] * 4 + [socketpair] * 2 + [bind] * 6 + [connect] * 5 + [listen] * 3 + [accept] * 4 + [send] * 5 + [sendto] * 7 + [receive] * 8
        + [recvmsg] * 5 + [poll] * 6 + [names_of] * 2 + [getsockopt] * 2 + [setsockopt] * 2 + [shutdown] * 2 + [close] * 2 + [ioctl]
    )

    def step(self):
        """One random call: its text and its result."""
        r = self.random
        call = r.choice(self.CALLS)
        if not self.sockets or (call in (Sequence.socket, Sequence.socketpair) and len(self.sockets) < SOCKETS):
            call = call if call is Sequence.socketpair else Sequence.socket
        elif call in (Sequence.socket, Sequence.socketpair):
            call = Sequence.poll
        text, make = call(self)
        try:
            return text, make()
        except OSError as error:
            return text, errno.errorcode[error.errno]
        except ValueError as error:
            return text, str(error)


def run(seed, length):
    sequence = Sequence(seed)
    for number in range(length):
        text, result = sequence.step()
        print("%d.%d %s = %s" % (seed, number, text, result))
    for one in sequence.sockets:
        one.close()


def sequences(path):
    """The lines of an output, by sequence, each as the call and its result."""
    found = {}
    for line in open(path):
        number, rest = line.rstrip("\n").split(" ", 1)
        found.setdefault(int(number.split(".")[0]), []).append(rest.split(" = ", 1))
    return found


def reason(calls, kernels, ours):
    """Why the last of the calls may have another result here, in the words of docs/TIPC-CONFORMANCE.md; None if it may not."""
    call = calls[-1].split()
    name, own = call[0], call[1] if len(call) > 1 else ""
    before = calls[:-1]
    looks = name in ("poll", "recvfrom", "recvmsg", "getsockopt", "send", "sendto", "connect")
    if looks and any(c in before for c in ("connect %s socket %s" % (own, own),)):
        return "a socket connected to itself"
    if looks and any(c.startswith("sendto %s " % own) and c.endswith(" socket %s" % own) for c in before):
        return "a socket connected to itself"
    if name in ("recvfrom", "recvmsg", "poll", "getsockopt") and "shutdown %s 2" % own in before:
        return "a shutdown that failed"
    if name == "poll" and "IN" in kernels and ours == "+".join(bit for bit in kernels.split("+") if bit not in ("IN", "RDNORM")):
        return "an empty message"
    if name == "getsockopt" and call[2:] == ["271", "132"]:
        return "an empty message"
    if name in ("recvfrom", "recvmsg") and "listen %s" % own in before and ours == "EAGAIN":
        return "a request at a listening socket"
    if name == "recvmsg" and "'returned'" in kernels and "'returned'" not in ours:
        return "data of a stream that its peer has not read"
    if name == "shutdown" and (kernels, ours) == ("None", "ENOTCONN"):
        return "a pending connection that is shut down"
    if name in ("poll", "recvmsg", "recvfrom", "getsockopt", "send", "connect") and any(c.startswith(("connect %s " % own, "sendto %s " % own)) for c in before):
        return "a request at a socket that does not listen"
    if name == "sendto" and "range" in call and ours in ("EHOSTUNREACH", "ENOTSUP", "EISCONN"):
        return "a range as the destination of a connection"
    if name == "getpeername" and kernels.startswith("socket ") and ours.startswith("socket "):
        return "the end of a pair that has sent elsewhere"
    if name == "sendto" and (kernels, ours) == ("ENOTCONN", "EISCONN"):
        return "an address while a connection is pending"
    if any(c.startswith("setsockopt %s 129 " % own) and not c.endswith(" 0") for c in before) and ours in ("EPIPE", "ECONNRESET"):
        return "a connection whose data may be dropped"
    if name in ("send", "sendto") and kernels.isdigit() and (ours.isdigit() or ours == "EAGAIN"):
        return "the window"
    return None


def compare(kernels, ours):
    """Prints what two outputs have in common; returns whether all differences are listed."""
    kernels, ours = sequences(kernels), sequences(ours)
    reasons, failing = {}, []
    for seed, lines in kernels.items():
        others = ours.get(seed, [])
        for number, (kernel, here) in enumerate(zip(lines, others)):
            if kernel != here:
                why = reason([call for call, _ in lines[: number + 1]], kernel[1], here[1]) if kernel[0] == here[0] else None
                if why is None:
                    failing.append((number, seed))
                else:
                    reasons[why] = reasons.get(why, 0) + 1
                break
        else:
            if len(lines) != len(others):
                failing.append((len(others), seed))
    print("%d sequences; differences that are listed: %s; others: %d" % (len(kernels), reasons or "none", len(failing)))
    if failing:
        number, seed = min(failing)
        for (call, kernel), (_, here) in zip(kernels[seed][: number + 1], ours.get(seed, [])):
            print("%d %s = %s%s" % (seed, call, kernel, "" if kernel == here else "   (here %s)" % here))
    return not failing


if __name__ == "__main__":
    if sys.argv[1] == "compare":
        sys.exit(not compare(sys.argv[2], sys.argv[3]))
    first, count = int(sys.argv[1]), int(sys.argv[2])
    for seed in range(first, first + count):
        run(seed, int(sys.argv[3]) if len(sys.argv) > 3 else 20)
