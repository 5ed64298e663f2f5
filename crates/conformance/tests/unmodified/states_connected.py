"""One end of a connection: its states, the calls made in them, and what can happen at the other end."""

import select
import socket as S
import time

import states_kit
from states_kit import bind, CONN_TIMEOUT, fill, name, outcome, OVER, PATIENCE, polled, settle, SOL_TIPC
from states_peer import peer


class Pair:
    """One end of a connection; the other is the peer's."""

    next = 19500

    def __init__(self, kind):
        # Numbers of the peer's sockets: this one is for the listener and its child, the next one for the other end.
        Pair.next += 2
        self.kind, self.service = kind, Pair.next
        self.key, self.other = self.service, self.service + 1
        self.one = S.socket(S.AF_TIPC, kind)

    def name(self):
        return name(self.service)

    def listen(self):
        peer.listen(self.key, self.kind, self.service)
        # Its name may not have arrived yet.
        probe, begin = S.socket(S.AF_TIPC, S.SOCK_RDM), time.monotonic()
        while outcome(lambda: probe.sendto(b"", self.name())) == "EHOSTUNREACH":
            assert time.monotonic() - begin < PATIENCE, "the peer's name does not come"
            time.sleep(0.01)
        probe.close()

    def ask(self):
        self.listen()
        self.one.setblocking(False)
        outcome(lambda: self.one.connect(self.name()))
        return self

    def accept(self):
        peer.accept(self.key, self.other)
        settle()
        self.one.setblocking(False)
        return self

    def connect(self):
        return self.ask().accept()

    def connect_to_child(self):
        self.ask()
        peer.accept_in_child(self.key)
        settle()
        return self

    def close(self):
        peer.kill(self.key)
        for key in (self.other, self.key):
            peer.close(key)
        self.one.close()


class Accepted(Pair):
    """The end of a connection that has accepted it; the peer's end has connected."""

    def offer(self):
        self.one.listen(4)
        bind(self.one, self.service)

    def accepted(self):
        assert select.select([self.one], [], [], PATIENCE)[0], "the peer does not connect"
        listener, (self.one, _) = self.one, self.one.accept()
        listener.close()
        self.one.setblocking(False)
        settle()
        return self

    def connect(self):
        self.offer()
        begin = time.monotonic()
        while peer.connect(self.other, self.kind, self.service) == "EHOSTUNREACH":
            assert time.monotonic() - begin < PATIENCE, "the own name does not come to the peer"
            peer.close(self.other)
            time.sleep(0.01)
        return self.accepted()

    def connect_to_child(self):
        self.offer()
        peer.connect_in_child(self.key, self.kind, self.service)
        return self.accepted()


def fresh(pair):
    pair.one.setblocking(False)


def listening(pair):
    pair.one.listen(4)
    pair.one.setblocking(False)


def refused(pair):
    pair.listen()
    node, port = peer.port(pair.key)
    peer.close(pair.key)
    outcome(lambda: pair.one.connect((S.TIPC_ADDR_ID, node, port, 0)))
    pair.one.setblocking(False)


def timed_out(pair):
    pair.listen()
    pair.one.setsockopt(SOL_TIPC, CONN_TIMEOUT, 60)
    outcome(lambda: pair.one.connect(pair.name()))
    pair.one.setblocking(False)


def unread(pair):
    pair.connect()
    peer.send(pair.other)
    settle()
    return pair


def full(pair):
    fill(pair.connect().one)


def own_shutdown(pair):
    pair.connect().one.shutdown(S.SHUT_RDWR)


def peer_shutdown(pair):
    pair.connect()
    peer.shutdown(pair.other)


def data_and_shutdown(pair):
    unread(pair)
    peer.shutdown(pair.other)


def shutdown_read(pair):
    peer_shutdown(pair)
    settle()
    outcome(lambda: pair.one.recv(99))


def peer_close(pair):
    pair.connect()
    peer.close(pair.other)


def data_and_close(pair):
    unread(pair)
    peer.close(pair.other)


def close_unread(pair):
    """A message sent here is returned."""
    pair.connect().one.send(b"four")
    settle()
    peer.close(pair.other)


def both_shutdown(pair):
    pair.connect().one.shutdown(S.SHUT_RDWR)
    peer.shutdown(pair.other)


def peer_killed(pair):
    pair.connect_to_child()
    peer.kill(pair.key)


STATES = {
    "open": fresh,
    "listening": listening,
    "connecting": Pair.ask,
    "request refused": refused,
    "request timed out": timed_out,
    "connected": Pair.connect,
    "connected, 2 bytes unread": unread,
    "connected, window full": full,
    "shut down here": own_shutdown,
    "shut down by the peer": peer_shutdown,
    "2 bytes, then shut down by the peer": data_and_shutdown,
    "shut down by the peer, end read": shutdown_read,
    "closed by the peer": peer_close,
    "2 bytes, then closed by the peer": data_and_close,
    "closed by the peer, 4 sent bytes unread": close_unread,
    "shut down by both": both_shutdown,
    "peer killed": peer_killed,
}
# The calls of each group are made on one connection, in this order.
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
# States in which the other end can do something. A connection can reach them at the end that connected and at the end
# that accepted.
WITH_PEER = [
    "connected",
    "connected, 2 bytes unread",
    "connected, window full",
    "shut down here",
    "shut down by the peer",
]
EVENTS = {
    "sends 2 bytes": lambda pair: peer.send(pair.other),
    "sends until its window is full": lambda pair: setattr(pair, "sent", peer.fill(pair.other)),
    "reads all (acknowledges)": lambda pair: peer.read(pair.other),
    "shuts down": lambda pair: peer.shutdown(pair.other),
    "closes": lambda pair: peer.close(pair.other),
    "shuts down and closes": lambda pair: (peer.shutdown(pair.other), peer.close(pair.other)),
    "closes, 4 bytes of this end unread": lambda pair: (
        outcome(lambda: pair.one.send(b"four")),
        settle(),
        peer.close(pair.other),
    ),
}
# How an end whose peer is a separate process reaches those states in which that process is killed.
BEFORE_KILL = {
    "connected": lambda one: None,
    "connected, window full": fill,
    "shut down here": lambda one: one.shutdown(S.SHUT_RDWR),
}
WHILE_CONNECTING = {
    "accepts": lambda pair: pair.accept(),
    "accepts and closes": lambda pair: (pair.accept(), peer.close(pair.other)),
    "closes the listener": lambda pair: peer.close(pair.key),
}


def received(pair):
    got = outcome(lambda: pair.one.recv(99999))
    sent, bytes = 1000 * getattr(pair, "sent", 0), 0
    # All that the peer has sent counts, in one message or in many of a stream: reading makes room for what the node
    # holds.
    while sent and got.isdigit() and int(got) > 0:
        bytes += int(got)
        if bytes >= sent:
            pair.sent = 0
            return "all"
        if not select.select([pair.one], [], [], 2 + 20 * states_kit.SETTLE)[0]:
            return "%d of %d bytes" % (bytes, sent)
        got = outcome(lambda: pair.one.recv(99999))
    return got


def seen(pair):
    """The results at this end, until they repeat."""
    found = [polled(pair.one)]
    for _ in range(4):
        found.append(received(pair))
        if found[-1] in OVER:
            break
    return " ".join(found) + ", send " + outcome(lambda: pair.one.send(b"x"))
