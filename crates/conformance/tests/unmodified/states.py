"""What each call returns in each state of a socket, and the effect of an event at the other end on each state, as rows of tables.

    states.py peer                    the other end, on this node or another: follows requests in messages until one asks it to end
    states.py ask [SECONDS [TABLES]]  prints the tables; pauses for SECONDS between two steps. TABLES is a file with the tables that are expected, in JSON
    states.py loss [SECONDS]          opens a connection in each state, prints "cut", and prints the effect of the loss of the peer's node
    states.py probed [SECONDS]        opens a connection in each state, and prints the effect of probes by the peer's node
"""

import errno
import json
import os
import select
import signal
import socket as S
import struct
import sys
import time

# Pause between two steps, in seconds.
SETTLE = float(sys.argv[2]) if len(sys.argv) > 2 else 0.02
# Nothing takes this long, in seconds, unless it hangs.
PATIENCE = 60
# Interval, in seconds, at which the peer's node probes connections; the test starts it with this value.
PROBING = 2
# How often the steps of a cell are made, each time with twice the pauses, until their results are the expected ones; and after how many
# repetitions in vain all further steps are made once: then it is not for lack of time that results differ.
ATTEMPTS = 5
VAIN_MAX = 60
KINDS = {"SEQPACKET": S.SOCK_SEQPACKET, "STREAM": S.SOCK_STREAM}
SOL_TIPC, DEST_DROPPABLE, CONN_TIMEOUT, GROUP_JOIN = 271, 129, 130, 135
ERRINFO, RETDATA = 1, 2
CONTROL = 19400
POLL = [("IN", select.POLLIN), ("OUT", select.POLLOUT), ("HUP", select.POLLHUP), ("ERR", select.POLLERR)]
OVER = ("EAGAIN", "ECONNRESET", "ENOTCONN")


def settle():
    time.sleep(SETTLE)


class Expected:
    """The tables that are expected, if any are, in the order in which they are printed; the first row of each names its columns."""

    def __init__(self, tables):
        self.tables, self.left = iter(tables), VAIN_MAX
        self.row = {}

    def begin(self, *columns):
        """The next table begins, which must have these columns."""
        rows = next(self.tables, None)
        self.row = {}
        if rows is not None:
            assert rows[0] == list(columns), "expected a table of %s, not of %s" % (rows[0], columns)
            self.row = {row[0]: row[1:] for row in rows[1:]}

    def cells(self, name, first, count):
        """The expected cells of a row."""
        return self.row[name][first : first + count] if name in self.row else None

    def reached(self, measure, wanted):
        """The results of `measure`, repeated with longer pauses while they are not the wanted ones: a node of a busy machine may have had no time for its work."""
        global SETTLE
        before = SETTLE
        for attempt in range(ATTEMPTS):
            found = measure()
            if wanted is None or found == wanted or self.left == 0:
                break
            if attempt + 1 < ATTEMPTS:
                SETTLE *= 2
        else:
            self.left = max(0, self.left - ATTEMPTS)
        SETTLE = before
        return found


expected = Expected(json.load(open(sys.argv[3])) if len(sys.argv) > 3 else [])


def outcome(call):
    try:
        got = call()
    except OSError as error:
        return errno.errorcode[error.errno]
    return str(len(got)) if isinstance(got, bytes) else "ok" if got is None else str(got)


def polled(one):
    poll = select.poll()
    poll.register(one, select.POLLIN | select.POLLOUT)
    events = dict(poll.poll(0)).get(one.fileno(), 0)
    return "+".join(name for name, bit in POLL if events & bit) or "nothing"


def name(service):
    return (S.TIPC_ADDR_NAME, service, 1, 0)


def bind(sock, service):
    sock.bind((S.TIPC_ADDR_NAMESEQ, service, 1, 1, 2))


def fill(sock):
    """Sends until no more is accepted, even after earlier messages have been forwarded; returns the number of messages."""
    count, refused = 0, 0
    while refused < 4:
        try:
            sock.send(bytes(1000))
            count, refused = count + 1, 0
        except BlockingIOError:
            settle()
            refused += 1
        except BrokenPipeError:
            break
    return count


class Peer:
    """The peer's side; its sockets are identified by numbers that the requester chooses."""

    def __init__(self):
        self.sockets, self.children = {}, {}

    def listen(self, key, kind, service):
        listener = self.sockets[key] = S.socket(S.AF_TIPC, kind)
        listener.listen(4)
        bind(listener, service)

    def accept(self, key, new):
        listener = self.sockets[key]
        select.select([listener], [], [], PATIENCE)
        self.sockets[new], _ = listener.accept()
        self.sockets[new].setblocking(False)

    def connect(self, key, kind, service):
        one = self.sockets[key] = S.socket(S.AF_TIPC, kind)
        one.setblocking(False)
        return outcome(lambda: one.connect(name(service)))

    def connect_in_child(self, key, kind, service):
        self.children[key] = os.fork()
        if self.children[key] == 0:
            one = S.socket(S.AF_TIPC, kind)
            while outcome(lambda: one.connect(name(service))) == "EHOSTUNREACH":
                one.close()
                one = S.socket(S.AF_TIPC, kind)
                time.sleep(0.01)
            while True:
                time.sleep(100)

    def accept_in_child(self, key):
        listener, (heard, told) = self.sockets[key], os.pipe()
        self.children[key] = os.fork()
        if self.children[key] == 0:
            _one, _ = listener.accept()
            listener.close()
            os.write(told, b"x")
            while True:
                time.sleep(100)
        listener.close()
        os.close(told)
        os.read(heard, 1)
        os.close(heard)

    def bound(self, key, service):
        sock = self.sockets[key] = S.socket(S.AF_TIPC, S.SOCK_RDM)
        bind(sock, service)
        sock.setblocking(False)

    def bound_in_child(self, key, service):
        heard, told = os.pipe()
        self.children[key] = os.fork()
        if self.children[key] == 0:
            sock = S.socket(S.AF_TIPC, S.SOCK_RDM)
            bind(sock, service)
            os.write(told, b"x")
            while True:
                time.sleep(100)
        os.close(told)
        os.read(heard, 1)
        os.close(heard)

    def withdraw(self, key, service):
        self.sockets[key].bind((S.TIPC_ADDR_NAMESEQ, service, 1, 1, -2))

    def port(self, key):
        return self.sockets[key].getsockname()[1:3]

    def send(self, key):
        return outcome(lambda: self.sockets[key].send(b"12"))

    def send_to(self, key, service, text):
        return outcome(lambda: self.sockets[key].sendto(text.encode(), name(service)))

    def fill(self, key):
        return fill(self.sockets[key])

    def read(self, key):
        """Everything that is available."""
        while outcome(lambda: self.sockets[key].recv(70000)) not in OVER + ("0",):
            pass

    def shutdown(self, key):
        outcome(lambda: self.sockets[key].shutdown(S.SHUT_RDWR))

    def close(self, key):
        if key in self.sockets:
            self.sockets.pop(key).close()

    def kill(self, key):
        if key in self.children:
            os.kill(self.children[key], signal.SIGKILL)
            os.waitpid(self.children.pop(key), 0)

    def serve(self):
        control = S.socket(S.AF_TIPC, S.SOCK_RDM)
        bind(control, CONTROL)
        while True:
            words, asker = control.recvfrom(1000)
            call, *words = json.loads(words)
            if call == "end":
                return
            control.sendto(json.dumps(getattr(self, call)(*words)).encode(), asker)


class Remote:
    """The peer, on whichever node it is."""

    def __init__(self):
        self.control = S.socket(S.AF_TIPC, S.SOCK_RDM)
        self.control.settimeout(PATIENCE)

    def __getattr__(self, call):
        def ask(*words):
            begin = time.monotonic()
            while True:
                try:
                    self.control.sendto(json.dumps([call, *words]).encode(), name(CONTROL))
                    break
                except OSError as error:
                    if error.errno != errno.EHOSTUNREACH or time.monotonic() - begin > PATIENCE:
                        raise
                    time.sleep(0.05)
            return json.loads(self.control.recv(1000)) if call != "end" else None

        return ask


peer = None


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
        if not select.select([pair.one], [], [], 2 + 20 * SETTLE)[0]:
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


def row(*cells):
    print("| " + " | ".join(cells) + " |", flush=True)


def head(*cells):
    expected.begin(*cells)
    row(*cells)
    row(*["---"] * len(cells))


def results(kind, enter, calls):
    """The results of calls in a state."""
    end = kind()
    enter(end)
    settle()
    found = [call(end) for call in calls]
    end.close()
    return found


def table(title, kind, states, calls):
    head(title, *[call for group in calls for call in group])
    for state, enter in states.items():
        cells = []
        for group in calls:
            wanted = expected.cells(state, len(cells), len(group))
            cells += expected.reached(lambda: results(kind, enter, group.values()), wanted)
        row(state, *cells)
    print()


def after_event(end, state, happen):
    """The results at an end in a state after an event."""
    STATES[state](end)
    settle()
    happen(end)
    settle()
    found = seen(end)
    end.close()
    return found


def after_kill(end, state):
    """The same after the peer's process was killed."""
    end.connect_to_child()
    BEFORE_KILL[state](end.one)
    settle()
    peer.kill(end.key)
    settle()
    found = seen(end)
    end.close()
    return found


def measures(end):
    """For each event, a function for each state in which it can happen."""
    rows = {
        event: [lambda state=state, happen=happen: after_event(end(), state, happen) for state in WITH_PEER]
        for event, happen in EVENTS.items()
    }
    rows["is killed"] = [
        (lambda state=state: after_kill(end(), state)) if state in BEFORE_KILL else (lambda: "-") for state in WITH_PEER
    ]
    return rows


def differences(event, known):
    """The expected results of an accepting end after an event, if any are: those of the other end unless they are stated."""
    wanted = expected.cells(event, 0, 1)
    if wanted is None:
        return [None] * len(known)
    stated = dict(part.split(": ", 1) for part in wanted[0].split("; ") if ": " in part)
    return [stated.get(state, cell) for state, cell in zip(WITH_PEER, known)]


def events(kind, number):
    head(kind + ": the other end", *WITH_PEER)
    rows = {}
    for event, cells in measures(lambda: Pair(number)).items():
        wanted = expected.cells(event, 0, len(cells)) or [None] * len(cells)
        rows[event] = [expected.reached(*cell) for cell in zip(cells, wanted)]
        row(event, *rows[event])
    print()
    head(kind + ": the other end, which connected to this one", "difference from the table above")
    for event, cells in measures(lambda: Accepted(number)).items():
        found = [expected.reached(*cell) for cell in zip(cells, differences(event, rows[event]))]
        others = ["%s: %s" % (state, cell) for state, cell, known in zip(WITH_PEER, found, rows[event]) if cell != known]
        row(event, "; ".join(others) or "none")
    print()
    head(kind + ": the other end, to which this one connects", "poll", "receives, send")
    for event, happen in WHILE_CONNECTING.items():
        row(event, *expected.reached(lambda: while_connecting(Pair(number), happen), expected.cells(event, 0, 2)))
    print()


def while_connecting(pair, happen):
    pair.ask()
    settle()
    happen(pair)
    settle()
    found = seen(pair).split(" ", 1)
    pair.close()
    return found


def lost():
    """A connection in each state, and then the loss of the other node."""
    pairs = {}
    for kind, number in KINDS.items():
        for state in ["connecting"] + WITH_PEER + ["closed by the peer"]:
            pairs[kind, state] = Pair(number)
            STATES[state](pairs[kind, state])
    single = Single().bound()
    settle()
    print("cut", flush=True)
    begin, poll = time.monotonic(), select.poll()
    poll.register(pairs["SEQPACKET", "connected"].one, 0)
    while not poll.poll(100):
        assert time.monotonic() - begin < PATIENCE, "the node is not lost"
    time.sleep(0.5 + 10 * SETTLE)
    for kind in KINDS:
        head(kind + ": the other node is lost", "poll", "receives, send")
        for (its, state), pair in pairs.items():
            if its == kind:
                row(state, *seen(pair).split(" ", 1))
        print()
    head("RDM: the other node is lost", "poll", "receives, send")
    row("bound", *rdm_seen(single).split(" ", 1))
    print()


def peer_full(pair):
    pair.connect()
    pair.sent = peer.fill(pair.other)


def probed():
    """A connection in each state during two probes by the other node; a first probe without an answer would end it before the second."""
    states = {state: STATES[state] for state in WITH_PEER}
    states["connected, the peer's window full"] = peer_full
    pairs = {}
    for kind, number in KINDS.items():
        for state, enter in states.items():
            pairs[kind, state] = Pair(number)
            enter(pairs[kind, state])
    settle()
    time.sleep(2.5 * PROBING)
    for kind in KINDS:
        head(kind + ": the other node probes", "poll", "receives, send")
        for (its, state), pair in pairs.items():
            if its == kind:
                row(state, *seen(pair).split(" ", 1))
        print()
    # An end whose probe is not answered ends without a word to this one.
    for (kind, state), pair in pairs.items():
        if not state.startswith("shut down"):
            found = peer.send(pair.other)
            assert found in ("2", "EAGAIN"), "%s, %s: after probes, a send at the other end gives %s" % (kind, state, found)
    peer.end()


def ask():
    for kind, number in KINDS.items():
        table(kind + " state", lambda: Pair(number), STATES, CALLS)
    table("RDM state", Single, RDM_STATES, RDM_CALLS)
    for kind, number in KINDS.items():
        events(kind, number)
    head("RDM: the other end", "poll", "receives, send")
    for event, (enter, happen) in RDM_EVENTS.items():
        row(event, *expected.reached(lambda: after_rdm_event(enter, happen), expected.cells(event, 0, 2)))
    print()
    peer.end()


def after_rdm_event(enter, happen):
    single = Single()
    enter(single)
    settle()
    happen(single)
    settle()
    found = rdm_seen(single).split(" ", 1)
    single.close()
    return found


signal.signal(signal.SIGPIPE, signal.SIG_IGN)
if sys.argv[1] == "peer":
    Peer().serve()
else:
    peer = Remote()
    {"ask": ask, "loss": lost, "probed": probed}[sys.argv[1]]()
