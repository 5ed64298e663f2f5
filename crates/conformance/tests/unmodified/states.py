"""What each call returns in each state of a socket, and the effect of an event at the other end on each state, as rows of tables.

    states.py peer                    the other end, on this node or another: follows requests in messages until one asks it to end
    states.py ask [SECONDS [TABLES]]  prints the tables; pauses for SECONDS between two steps. TABLES is a file with the tables that are expected, in JSON
    states.py loss [SECONDS]          opens a connection in each state, prints "cut", and prints the effect of the loss of the peer's node
    states.py probed [SECONDS]        opens a connection in each state, and prints the effect of probes by the peer's node
"""

import select
import signal
import socket as S
import sys
import time

import states_kit
from states_connected import Accepted, BEFORE_KILL, CALLS, EVENTS, Pair, seen, STATES, WHILE_CONNECTING, WITH_PEER
from states_kit import expected, head, PATIENCE, row, settle
from states_peer import Peer, peer
from states_single import RDM_CALLS, RDM_EVENTS, rdm_seen, RDM_STATES, Single

# Interval, in seconds, at which the peer's node probes connections; the test starts it with this value.
PROBING = 2
KINDS = {"SEQPACKET": S.SOCK_SEQPACKET, "STREAM": S.SOCK_STREAM}


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
    time.sleep(0.5 + 10 * states_kit.SETTLE)
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
    {"ask": ask, "loss": lost, "probed": probed}[sys.argv[1]]()
