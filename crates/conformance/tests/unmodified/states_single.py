"""A connectionless socket: its states, the calls made in them, and what can happen at the other end."""

import errno
import select
import socket as S
import struct
import time

from states_connected import Pair
from states_kit import bind, DEST_DROPPABLE, GROUP_JOIN, name, outcome, PATIENCE, polled, settle, SOL_TIPC
from states_peer import peer

ERRINFO, RETDATA = 1, 2


class Single:
    """A connectionless socket; the peer has one that is bound to the service."""

    def __init__(self):
        Pair.next += 2
        self.service = self.key = Pair.next
        self.own = self.service + 1
        self.one = self.opened()

    @staticmethod
    def opened():
        """Undeliverable messages are to be returned."""
        one = S.socket(S.AF_TIPC, S.SOCK_RDM)
        one.setsockopt(SOL_TIPC, DEST_DROPPABLE, 0)
        one.setblocking(False)
        return one

    def reach(self):
        """Sends a message that must not be returned, once there is a receiver."""
        begin = time.monotonic()
        self.one.setsockopt(SOL_TIPC, DEST_DROPPABLE, 1)
        while outcome(lambda: self.one.sendto(b"?", name(self.service))) == "EHOSTUNREACH":
            assert time.monotonic() - begin < PATIENCE, "the peer's name does not come"
            time.sleep(0.01)
        self.one.setsockopt(SOL_TIPC, DEST_DROPPABLE, 0)

    def bound(self):
        peer.bound(self.key, self.service)
        self.reach()
        bind(self.one, self.own)
        begin = time.monotonic()
        while peer.send_to(self.key, self.own, "?") == "EHOSTUNREACH":
            assert time.monotonic() - begin < PATIENCE, "the own name does not come to the peer"
            time.sleep(0.01)
        settle()
        peer.read(self.key)
        select.select([self.one], [], [], PATIENCE)
        self.one.recv(99)
        return self

    def unread(self):
        self.bound()
        peer.send_to(self.key, self.own, "four")

    def returned(self):
        """A message is returned from a socket that no longer exists."""
        self.bound()
        node, port = peer.port(self.key)
        peer.close(self.key)
        self.one.sendto(b"four", (S.TIPC_ADDR_ID, node, port, 0))

    def destined(self):
        self.bound().one.connect(name(self.service))

    def joined(self):
        self.bound()
        self.one.close()
        self.one = self.opened()
        self.one.setsockopt(SOL_TIPC, GROUP_JOIN, struct.pack("=4I", self.own, 7, 2, 0))

    def close(self):
        peer.kill(self.key)
        peer.close(self.key)
        self.one.close()


RDM_STATES = {
    "open": lambda single: None,
    "bound": Single.bound,
    "bound, 4 bytes unread": Single.unread,
    "a message has come back": Single.returned,
    "connected to a service": Single.destined,
    "alone in a group": Single.joined,
}


def what_came(single):
    """The result of recvmsg: the length in bytes, and for a returned message the reason and the length of the returned part."""
    try:
        data, ancillary, _, _ = single.one.recvmsg(70000, 2000)
    except OSError as error:
        return errno.errorcode[error.errno]
    found = {kind: text for _, kind, text in ancillary}
    if ERRINFO not in found:
        return str(len(data))
    code = struct.unpack("=II", found[ERRINFO])[0]
    return "%d (error %d, %d back)" % (len(data), code, len(found.get(RETDATA, b"")))


RDM_CALLS = [
    {
        "poll": lambda single: polled(single.one),
        "getpeername": lambda single: outcome(lambda: single.one.getpeername() and None),
        "recvmsg": what_came,
        "recvmsg again": what_came,
        "send": lambda single: outcome(lambda: single.one.send(b"x")),
        "sendto nobody": lambda single: outcome(lambda: single.one.sendto(b"x", name(4242))),
    },
    {"shutdown": lambda single: outcome(lambda: single.one.shutdown(S.SHUT_RDWR))},
    {
        "accept": lambda single: outcome(lambda: single.one.accept() and None),
        "listen": lambda single: outcome(lambda: single.one.listen(4)),
        "bind": lambda single: outcome(lambda: bind(single.one, single.service)),
    },
]


def to_child(single):
    peer.bound_in_child(single.key, single.service)
    single.reach()


def flood(single):
    """Sends until a message is returned."""
    for _ in range(200000):
        try:
            single.one.sendto(bytes(10000), name(single.service))
        except BlockingIOError:
            settle()
        if select.select([single.one], [], [], 0)[0]:
            return
    settle()


RDM_EVENTS = {
    "sends 4 bytes": (Single.bound, lambda single: peer.send_to(single.key, single.own, "four")),
    "withdraws its name": (Single.bound, lambda single: (peer.withdraw(single.key, single.service), settle())),
    "closes, 4 bytes of this end unread": (
        Single.bound,
        lambda single: (single.one.sendto(b"four", name(single.service)), settle(), peer.close(single.key)),
    ),
    "is killed, 4 bytes of this end unread": (
        to_child,
        lambda single: (single.one.sendto(b"four", name(single.service)), settle(), peer.kill(single.key)),
    ),
    "reads nothing until its queue is full": (Single.bound, flood),
}


def rdm_seen(single):
    found = [polled(single.one), what_came(single)]
    if found[-1].startswith("0 (error 4"):
        # The number depends on memory sizes.
        while what_came(single).startswith("0 (error 4"):
            settle()
    else:
        found.append(what_came(single))
    return " ".join(found) + ", send " + outcome(lambda: single.one.sendto(b"x", name(single.service)))
