"""The pause between steps, the expected tables, and what the steps of states.py are made of."""

import errno
import json
import select
import socket as S
import sys
import time

# Pause between two steps, in seconds.
SETTLE = float(sys.argv[2]) if len(sys.argv) > 2 else 0.02
# Nothing takes this long, in seconds, unless it hangs.
PATIENCE = 60
# How often the steps of a cell are made, each time with twice the pauses, until their results are the expected ones; and after how many
# repetitions in vain all further steps are made once: then it is not for lack of time that results differ.
ATTEMPTS = 5
VAIN_MAX = 60
SOL_TIPC, DEST_DROPPABLE, CONN_TIMEOUT, GROUP_JOIN = 271, 129, 130, 135
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


def row(*cells):
    print("| " + " | ".join(cells) + " |", flush=True)


def head(*cells):
    expected.begin(*cells)
    row(*cells)
    row(*["---"] * len(cells))
