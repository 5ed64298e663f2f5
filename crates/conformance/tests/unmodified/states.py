"""What each call says in each state of a connection's end, and what an event at the other end makes of it, as rows of two tables."""

import errno
import os
import select
import signal
import socket as S
import sys
import time

SETTLE = 0.5 if "busy" in sys.argv else 0.05
KINDS = {"SEQPACKET": S.SOCK_SEQPACKET, "STREAM": S.SOCK_STREAM}
SOL_TIPC, CONN_TIMEOUT = 271, 130
POLL = [("IN", select.POLLIN), ("OUT", select.POLLOUT), ("HUP", select.POLLHUP), ("ERR", select.POLLERR)]


def settle():
    time.sleep(SETTLE)


def outcome(call):
    try:
        got = call()
    except OSError as error:
        return errno.errorcode[error.errno]
    return repr(len(got)) if isinstance(got, bytes) else "ok" if got is None else str(got)


def polled(one):
    poll = select.poll()
    poll.register(one, select.POLLIN | select.POLLOUT)
    events = dict(poll.poll(0)).get(one.fileno(), 0)
    return "+".join(name for name, bit in POLL if events & bit) or "nothing"


class Pair:
    """An end of a connection, `one`, and what is at the other."""

    next = 19500

    def __init__(self, kind):
        Pair.next += 1
        self.kind, self.service = kind, Pair.next
        self.one, self.other, self.listener, self.child = S.socket(S.AF_TIPC, kind), None, None, None

    def name(self):
        return (S.TIPC_ADDR_NAME, self.service, 1, 0)

    def listen(self):
        self.listener = S.socket(S.AF_TIPC, self.kind)
        self.listener.listen(4)
        self.listener.bind((S.TIPC_ADDR_NAMESEQ, self.service, 1, 1, 2))

    def ask(self):
        self.listen()
        self.one.setblocking(False)
        outcome(lambda: self.one.connect(self.name()))

    def connect(self):
        self.ask()
        self.other, _ = self.listener.accept()
        settle()
        self.one.setblocking(False)
        return self

    def connect_to_child(self):
        """The other end is a process, which is killed."""
        self.listen()
        self.child = os.fork()
        if self.child == 0:
            self.one.close()
            other, _ = self.listener.accept()
            while True:
                time.sleep(100)
        self.listener.close()
        self.one.connect(self.name())
        self.one.setblocking(False)
        return self

    def kill(self):
        os.kill(self.child, signal.SIGKILL)
        os.waitpid(self.child, 0)
        self.child = None

    def fill(self):
        while True:
            try:
                self.one.send(bytes(1000))
            except BlockingIOError:
                if not settle() and not select.select([], [self.one], [], 0)[1]:
                    return

    def close(self):
        if self.child:
            self.kill()
        for end in (self.one, self.other, self.listener):
            if end:
                end.close()


def fresh(pair):
    pair.one.setblocking(False)


def listening(pair):
    pair.one.listen(4)
    pair.one.setblocking(False)


def refused(pair):
    pair.listen()
    name = pair.listener.getsockname()
    pair.listener.close()
    outcome(lambda: pair.one.connect(name))
    pair.one.setblocking(False)


def timed_out(pair):
    pair.listen()
    pair.one.setsockopt(SOL_TIPC, CONN_TIMEOUT, 60)
    outcome(lambda: pair.one.connect(pair.name()))
    pair.one.setblocking(False)


def unread(pair):
    pair.connect().other.send(b"four")


def own_shutdown(pair):
    pair.connect().one.shutdown(S.SHUT_RDWR)


def peer_shutdown(pair):
    pair.connect().other.shutdown(S.SHUT_RDWR)


def data_and_shutdown(pair):
    pair.connect().other.send(b"four")
    pair.other.shutdown(S.SHUT_RDWR)


def shutdown_read(pair):
    peer_shutdown(pair)
    settle()
    outcome(lambda: pair.one.recv(99))


def peer_close(pair):
    pair.connect().other.close()


def data_and_close(pair):
    pair.connect().other.send(b"four")
    pair.other.close()


def both_shutdown(pair):
    pair.connect().one.shutdown(S.SHUT_RDWR)
    pair.other.shutdown(S.SHUT_RDWR)


def peer_killed(pair):
    pair.connect_to_child().kill()


STATES = {
    "open": fresh,
    "listening": listening,
    "connecting": Pair.ask,
    "request refused": refused,
    "request timed out": timed_out,
    "connected": Pair.connect,
    "connected, 4 bytes unread": unread,
    "connected, window full": lambda pair: pair.connect().fill(),
    "shut down here": own_shutdown,
    "shut down by the peer": peer_shutdown,
    "4 bytes, then shut down by the peer": data_and_shutdown,
    "shut down by the peer, end read": shutdown_read,
    "closed by the peer": peer_close,
    "4 bytes, then closed by the peer": data_and_close,
    "shut down by both": both_shutdown,
    "peer killed": peer_killed,
}
# Each group is asked on one connection, in this order.
CALLS = [
    {
        "poll": lambda pair: polled(pair.one),
        "getpeername": lambda pair: outcome(lambda: pair.one.getpeername() and None),
        "recv": lambda pair: outcome(lambda: pair.one.recv(99)),
        "recv again": lambda pair: outcome(lambda: pair.one.recv(99)),
        "send": lambda pair: outcome(lambda: pair.one.send(b"x")),
    },
    {"shutdown": lambda pair: outcome(lambda: pair.one.shutdown(S.SHUT_RDWR))},
    {
        "accept": lambda pair: outcome(lambda: pair.one.accept() and None),
        "connect": lambda pair: outcome(lambda: pair.one.connect((S.TIPC_ADDR_NAME, 4242, 1, 0))),
        "listen": lambda pair: outcome(lambda: pair.one.listen(4)),
    },
]
# States in which there is another end that can do something.
WITH_PEER = ["connected", "connected, 4 bytes unread", "connected, window full", "shut down here", "shut down by the peer"]
EVENTS = {
    "data": lambda pair: outcome(lambda: pair.other.send(b"12")) and None,
    "shutdown": lambda pair: outcome(lambda: pair.other.shutdown(S.SHUT_RDWR)) and None,
    "close": lambda pair: pair.other.close(),
    "shutdown, close": lambda pair: (outcome(lambda: pair.other.shutdown(S.SHUT_RDWR)), pair.other.close()) and None,
}


def seen(pair):
    """What the end finds, until that repeats."""
    found = [polled(pair.one)]
    for _ in range(3):
        found.append(outcome(lambda: pair.one.recv(99)))
        if found[-1] in ("EAGAIN", "ECONNRESET"):
            break
    return " ".join(found) + ", send " + outcome(lambda: pair.one.send(b"x"))


def row(*cells):
    print("| " + " | ".join(cells) + " |", flush=True)


for kind, number in KINDS.items():
    names = [name for group in CALLS for name in group]
    row(kind + " state", *names)
    row(*["---"] * (1 + len(names)))
    for state, enter in STATES.items():
        cells = []
        for group in CALLS:
            pair = Pair(number)
            enter(pair)
            settle()
            cells += [call(pair) for call in group.values()]
            pair.close()
        row(state, *cells)
    print()
for kind, number in KINDS.items():
    row(kind + ": event at the other end", *WITH_PEER)
    row(*["---"] * (1 + len(WITH_PEER)))
    for event, happen in EVENTS.items():
        cells = []
        for state in WITH_PEER:
            pair = Pair(number)
            STATES[state](pair)
            settle()
            happen(pair)
            settle()
            cells.append(seen(pair))
            pair.close()
        row(event, *cells)
    print()
