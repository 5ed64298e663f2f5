"""The same calls on sockets of the kernel and on sockets of the node in user space: every result and every errno must be equal.

Each case is a list of calls on one end; it runs once with each."""

import errno
import time

from ends import DEAD, GROUP_JOIN, KINDS, RANGE, SERVICE, SOCKET, Kernel, User

GROUP_LEAVE = 136
# Time allowed for the kernel's own work and the requests to the node; on a busy machine, much longer.
SETTLE = 0.05
SETTLE_BUSY = 1.0


def name(e):
    return errno.errorcode.get(e.errno, str(e.errno))


def binding(e, do):
    s, t, c = e.open("rdm"), e.open("rdm"), e.open("seqpacket")
    do("a range", e.bind, s, 18500, 0, 9)
    do("the same again", e.bind, s, 18500, 0, 9)
    do("the same on another socket", e.bind, t, 18500, 0, 9)
    do("an overlapping one", e.bind, s, 18500, 5, 20)
    do("node scope", e.bind, s, 18501, 1, 1, 3)
    do("in the wrong order", e.bind, s, 18500, 9, 0)
    do("a reserved type", e.bind, s, 63, 0, 0)
    do("the first free type", e.bind, s, 64, 0, 0)
    do("unbind one", e.unbind, s, 18500, 5, 20)
    do("unbind one never bound", e.unbind, s, 18500, 5, 21)
    do("unbind with another scope", e.unbind, s, 18501, 1, 1, 2)
    do("bind a listener", lambda: (e.listen(c), e.bind(c, 18502, 0, 0))[1])


def listening(e, do):
    for kind in KINDS:
        s = e.open(kind)
        do("accept without listening, " + kind, e.accept, s)
        do("listen, " + kind, e.listen, s)
        do("listen again, " + kind, e.listen, s)
        do("ready, " + kind, e.ready, s)
        do("nobody to accept, " + kind, e.accept, s)


def connecting(e, do):
    for kind in ("seqpacket", "stream"):
        s = e.open(kind)
        do("unknown name", e.connect, s, (SERVICE, 18590, 0, 0))
        do("a range", e.connect, s, (RANGE, 18590, 0, 0))
        do("a node that is not there", e.connect, s, (SOCKET, 7, 12345))
        do("a dead port", e.connect, s, (SOCKET, DEAD, "own"))
        time.sleep(SETTLE)
        do("its readiness", e.ready, s)
        do("its error", e.connect_error, s)
        do("send after that", e.send, s, b"x")
        listener, service = e.open(kind), 18510 + len(kind)
        e.listen(listener)
        e.bind(listener, service, 0, 0)
        do("a listener connects", e.connect, listener, (SERVICE, service, 0, 0))
        bound = e.open(kind)
        e.bind(bound, 18591, 0, 0)
        do("a bound socket", e.connect, bound, (SERVICE, service, 0, 0))
        s = e.open(kind)
        do("without waiting", e.connect, s, (SERVICE, service, 0, 0))
        time.sleep(SETTLE)
        do("readiness before the answer", e.ready, s)
        do("again before the answer", e.connect, s, (SERVICE, service, 0, 0))
        do("send before the answer", e.send, s, b"x")
        do("receive before the answer", e.recv, s)
        do("listener's readiness", e.ready, listener)
        accepted = e.accept(listener)
        time.sleep(SETTLE)
        do("readiness after the answer", e.ready, s)
        do("again after the answer", e.connect, s, (SERVICE, service, 0, 0))
        do("bind when connected", e.bind, s, 18592, 0, 0)
        do("peer", e.peer, s)
        do("listen when connected", e.listen, s)
        e.close(accepted)


def datagrams(e, do):
    for kind in ("rdm", "dgram"):
        service = 18520 + len(kind)
        s, t = e.open(kind), e.open(kind)
        e.bind(t, service, 1, 1)
        e.bind(t, service, 3, 20)
        do("ready at birth", e.ready, s)
        do("no destination", e.send, s, b"x")
        do("unknown name", e.send, s, b"x", (SERVICE, 18590, 0, 0))
        do("multicast without receivers", e.send, s, b"x", (RANGE, 18590, 0, 9))
        do("a node that is not there", e.send, s, b"x", (SOCKET, 7, 12345))
        do("a dead port", e.send, s, b"x", (SOCKET, DEAD, "own"))
        do("nothing comes back", e.recv, s)
        do("66000", e.send, s, bytes(66000), (SERVICE, service, 1, 0))
        do("66001", e.send, s, bytes(66001), (SERVICE, service, 1, 0))
        do("empty", e.send, s, b"", (SERVICE, service, 1, 0))
        time.sleep(SETTLE)
        do("a short buffer", lambda: len(e.recv(t, 100)))
        do("the rest and the empty one", e.recv, t)
        do("to a range", e.send, s, b"many", (RANGE, service, 0, 9))
        time.sleep(SETTLE)
        do("once for each socket", e.recv, t)
        do("and no more", e.recv, t)
        do("a default destination", e.connect, s, (SERVICE, service, 1, 0))
        do("used", e.send, s, b"default")
        do("no peer for that", e.peer, s)
        do("shut down", e.shutdown, s)
        e.set(s, 129, 0)
        do("a dead port, to be returned", e.send, s, b"back please", (SOCKET, DEAD, "own"))
        time.sleep(SETTLE)
        do("returned", e.recv_returned, s)
        do("queued", e.get, t, 132)
        do("unread at close", e.send, s, b"unread", (SERVICE, service, 1, 0))
        time.sleep(SETTLE)
        e.recv(t)
        e.close(t)
        time.sleep(SETTLE)
        do("comes back", lambda: e.recv_returned(s)[:2])


def pair(e, kind, service):
    listener, s = e.open(kind), e.open(kind)
    e.listen(listener)
    e.bind(listener, service, 0, 0)
    try:
        e.connect(s, (SERVICE, service, 0, 0))
    except OSError as error:
        assert error.errno == errno.EINPROGRESS, error
    time.sleep(SETTLE)
    accepted = e.accept(listener)
    time.sleep(SETTLE)
    e.close(listener)
    return s, accepted


def connections(e, do):
    for n, kind in enumerate(("seqpacket", "stream")):
        s = e.open(kind)
        do("send unconnected", e.send, s, b"x")
        do("receive unconnected", e.recv, s)
        do("shut down unconnected", e.shutdown, s)
        do("implied, unknown name", e.send, s, b"x", (SERVICE, 18590, 0, 0))
        a, b = pair(e, kind, 18530 + n)
        do("66001", e.send, a, bytes(66001))
        do("empty", e.send, a, b"")
        do("one", e.send, a, b"abc")
        do("two", e.send, a, b"def")
        time.sleep(SETTLE)
        do("ready", e.ready, b)
        if kind == "stream":
            do("some of the bytes", lambda: len(e.recv(b, 1000)))
        else:
            do("the first", e.recv, b)
            do("the second, cut", e.recv, b, 2)
            do("its rest is gone", e.recv, b)
        do("last words", e.send, a, b"last words")
        do("shut down", e.shutdown, a)
        do("twice", e.shutdown, a)
        do("own send after it", e.send, a, b"x")
        do("own receive after it", e.recv, a)
        do("own readiness after it", e.ready, a)
        do("own peer after it", e.peer, a)
        time.sleep(SETTLE)
        if kind == "seqpacket":
            do("still read", e.recv, b)
            do("the end", e.recv, b)
            do("told once", e.recv, b)
        do("the peer's readiness", e.ready, b)
        do("the peer's send", e.send, b, b"x")
        do("the peer's peer", e.peer, b)
        a, b = pair(e, kind, 18540 + n)
        e.close(a)
        time.sleep(SETTLE)
        do("closed: readiness", e.ready, b)
        for _ in range(3):
            do("closed: receive", e.recv, b)
        do("closed: send", e.send, b, b"x")
        a, b = pair(e, kind, 18550 + n)
        e.send(a, b"never read")
        time.sleep(SETTLE)
        e.close(b)
        time.sleep(SETTLE)
        do("closed with unread: receive", e.recv, a)
    a, b = pair(e, "seqpacket", 18560)

    def fill():
        sent = 0
        try:
            while sent < 1000:
                e.send(a, bytes(1000))
                sent += 1
        except BlockingIOError:
            return sent, e.ready(a)

    do("messages of 1000 bytes until the window is full", fill)


def options(e, do):
    for kind in KINDS:
        s = e.open(kind)
        for option in (127, 128, 129, 130, 131, 132, 135, 137, 138, 133, 134, 136, 200):
            do("%s: get %d" % (kind, option), e.get, s, option)
        for option, value in (
            (127, 3), (127, 4), (128, 1), (129, 1), (129, 0), (130, 500), (131, 1), (132, 1), (137, 1),
            (133, None), (133, 1), (134, None), (134, 1), (138, 1), (200, 1), (200, None), (127, None),
        ):
            do("%s: set %d to %s" % (kind, option, value), e.set, s, option, value)
        for option in (127, 128, 129, 130):
            do("%s: get %d now" % (kind, option), e.get, s, option)


def groups(e, do):
    s = e.open("rdm")
    do("leave without joining", e.set, s, GROUP_LEAVE, None)
    do("join a reserved type", e.join, s, 63, 1)
    do("join", e.join, s, 18600, 1)
    do("join again", e.join, s, 18600, 1)
    do("group", e.get, s, GROUP_JOIN)
    do("bind", e.bind, s, 18601, 0, 0)
    do("connect", e.connect, s, (SERVICE, 18600, 1, 0))
    do("ready alone", e.ready, s)
    do("broadcast alone", e.send, s, b"x")
    do("multicast to nobody", e.send, s, b"x", (RANGE, 18600, 9, 9))
    do("anycast to nobody", e.send, s, b"x", (SERVICE, 18600, 9, 0))
    do("unicast to nobody", e.send, s, b"x", (SOCKET, DEAD, "own"))
    do("too long", e.send, s, bytes(66001))
    t = e.open("rdm")
    do("a second member", e.join, t, 18600, 2, 2, 2)
    time.sleep(SETTLE)
    do("ready together", e.ready, s)
    do("news", e.recv, t)
    do("broadcast", e.send, s, b"all")
    do("multicast", e.send, s, b"some", (RANGE, 18600, 2, 2))
    do("anycast", e.send, s, b"any", (SERVICE, 18600, 2, 0))
    do("unicast", e.send, s, b"you", (SOCKET, e.port(t), "own"))
    time.sleep(SETTLE)
    for _ in range(4):
        do("receive", e.recv, t)
    do("leave", e.set, s, GROUP_LEAVE, None)
    do("leave again", e.set, s, GROUP_LEAVE, None)
    time.sleep(SETTLE)
    do("news again", e.recv, t)
    do("no destination any more", e.send, s, b"x")
    for kind in ("seqpacket", "stream", "dgram"):
        do("join, " + kind, e.join, e.open(kind), 18610, 1)


CASES = (binding, listening, connecting, datagrams, connections, options, groups)


def run(end, settle=SETTLE):
    """The result of each call in each case."""
    global SETTLE
    SETTLE = settle
    results = []
    for case in CASES:

        def do(what, call, *args):
            try:
                got = call(*args)
                got = got if isinstance(got, (bytes, int, list, tuple)) and not isinstance(got, bool) else "ok"
            except OSError as e:
                got = name(e)
            results.append(("%s: %s" % (case.__name__, what), got))

        case(end, do)
    return results


def compare(control):
    """Runs the table on both ends."""
    # Differences that are only due to an end's lack of time disappear when it has more.
    for settle in (SETTLE, SETTLE_BUSY):
        users = User(control)
        kernel, user = run(Kernel(), settle), run(users, settle)
        users.close_all()
        assert [what for what, _ in kernel] == [what for what, _ in user]
        wrong = ["%s: kernel %r, user space %r" % (what, k, u) for (what, k), (_, u) in zip(kernel, user) if k != u]
        if not wrong:
            break
    assert not wrong, "%d of %d calls differ:\n%s" % (len(wrong), len(kernel), "\n".join(wrong))
    print("held: %d calls give the same on both ends" % len(kernel), flush=True)
