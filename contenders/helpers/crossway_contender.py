"""The contenders' protocol of Crossway, version 1, for programs in Python: standard library only.

A contender is an object with these methods; docs/CONTENDERS.md defines what they must do:

    library()            the library's name and version
    listen(role)         listens; returns a dict of words from which the other end connects
    accept()             waits for the other end to connect (optional)
    connect(role, words) connects to the other end's offer
    send(message)        sends one message, all of it
    receive(size)        receives one message of at most `size` bytes (byte streams: exactly that many) and returns it
    close()              closes the channel

and the program ends with `crossway_contender.main(contender)`.

SPDX-License-Identifier: MIT OR Apache-2.0
"""

import json
import mmap
import os
import sys
import time
import zlib
from collections import Counter
from struct import Struct

PROTOCOL = 1
_NUMBER = Struct("<Q")


class Unsupported(Exception):
    """The contender cannot do what was requested: the case is skipped, not failed."""


class Role:
    """The role of this end; `dir` is a private directory, removed afterwards."""

    def __init__(self, order):
        self.part = order["part"]
        self.listens = order["listens"]
        self.size_bytes = order["size_bytes"]
        self.spins = order["wait"] == "spin"
        self.cpu = order["cpu"]
        self.bind = order["bind"]
        self.dir = order["dir"]
        self.shm_prefix = order["shm_prefix"]
        self.capacity_bytes = order["capacity_bytes"]
        self.socket_buffer_bytes = order["socket_buffer_bytes"]
        #: Processes that this one started and that work for both ends.
        self.servers = []
        #: Values read back, with the unit in the name.
        self.facts = {}


class _Window:
    def __init__(self, order, role):
        self.messages = order["messages"]
        self.batch = order["batch"]
        self.first = order["first"]
        self.slots = []
        self.payload = None
        if order["payload"]:
            about = order["payload"]
            total = about["count"] * about["stride"]
            with open(about["path"], "rb") as file, mmap.mmap(file.fileno(), total, prot=mmap.PROT_READ) as mapped:
                self.payload = bytearray(mapped)
            view = memoryview(self.payload)
            starts = range(0, total, about["stride"])
            self.slots = [view[at : at + role.size_bytes] for at in starts]
        self.checksum = 0
        self.samples = []
        self.counts = {"sent": 0, "received": 0, "out_of_order": 0}


def _sender(contender, role, window):
    send, slots, number = contender.send, window.slots, window.first
    put = _NUMBER.pack_into if role.size_bytes >= 8 else lambda *_: None
    left = window.messages
    while left > 0:
        for slot in slots[:left]:
            put(slot, 0, number)
            number += 1
            send(slot)
        left -= len(slots)
    window.counts["sent"] = window.messages


def _receiver(contender, role, window):
    receive, size, adler32 = contender.receive, role.size_bytes, zlib.adler32
    number_of = _NUMBER.unpack_from
    total = wrong = 0
    expected = None
    for _ in range(window.messages):
        message = receive(size)
        if len(message) != size:
            raise RuntimeError(f"received {len(message)} bytes instead of {size}")
        total += adler32(message)
        if size >= 8:
            (number,) = number_of(message)
            wrong += number != expected and expected is not None
            expected = number + 1
    window.checksum = total
    window.counts.update(received=window.messages, out_of_order=wrong)


def _client_or_server(contender, role, window):
    send, receive, size, adler32 = contender.send, contender.receive, role.size_bytes, zlib.adler32
    number_of, put = _NUMBER.unpack_from, _NUMBER.pack_into
    slots, batch, samples, now = window.slots, window.batch, window.samples, time.monotonic_ns
    client, numbered = role.part == "client", role.size_bytes >= 8
    total = wrong = 0
    expected, number, turns = None, window.first, len(slots)
    last = now()
    for n in range(window.messages):
        slot = slots[n % turns]
        if numbered:
            put(slot, 0, number)
            number += 1
        if client:
            send(slot)
        message = receive(size)
        if len(message) != size:
            raise RuntimeError(f"received {len(message)} bytes instead of {size}")
        total += adler32(message)
        if numbered:
            (came,) = number_of(message)
            wrong += came != expected and expected is not None
            expected = came + 1
        if not client:
            send(slot)
        elif (n + 1) % batch == 0:
            at = now()
            samples.append(at - last)
            last = at
    window.checksum = total
    window.counts.update(sent=window.messages, received=window.messages, out_of_order=wrong)


def _verify(contender, order):
    lengths = []
    with open(order["path"], "r+b", buffering=0) as file:
        for length in order["lengths"]:
            if order["sends"]:
                contender.send(memoryview(bytearray(file.read(length))))
                lengths.append(length)
            else:
                message = contender.receive(length)
                file.write(message)
                lengths.append(len(message))
    return lengths


def _serve(contender, orders, say):
    say(answer="hello", protocol=PROTOCOL, library=contender.library(), checksum="adler32")
    role = window = None
    for line in orders:
        order = json.loads(line)
        name = order["order"]
        if name == "begin":
            if order["protocol"] != PROTOCOL:
                raise RuntimeError(f"this helper speaks version {PROTOCOL} of the protocol")
            role = Role(order)
            words = contender.listen(role) if role.listens else {}
            say(answer="offer", words=words, servers=role.servers)
        elif name == "connect":
            contender.connect(role, order["words"])
            say(answer="opened", facts=role.facts)
        elif name == "accept":
            if hasattr(contender, "accept"):
                contender.accept()
            say(answer="opened", facts=role.facts)
        elif name == "verify":
            say(answer="verified", lengths=_verify(contender, order))
        elif name == "prepare":
            window = _Window(order, role)
            say(answer="ready")
        elif name == "go":
            work = {"sender": _sender, "receiver": _receiver}.get(role.part, _client_or_server)
            start = time.monotonic_ns()
            work(contender, role, window)
            end = time.monotonic_ns()
            say(answer="done", start_ns=start, end_ns=end, **window.counts)
        elif name == "result":
            histogram = sorted(Counter(window.samples).items())
            checksum = None if role.part == "sender" else format(window.checksum, "x")
            say(answer="result", checksum=checksum, histogram=histogram)
        elif name == "close":
            contender.close()
            say(answer="closed")
            return 0
        else:
            raise RuntimeError(f"unknown order '{name}'")
    # The process that gave orders has ended.
    return 1


def main(contender):
    """Serves orders until the end; a program calls this last."""
    orders = os.fdopen(os.dup(0), "r")
    answers = os.fdopen(os.dup(1), "w")
    # Output that a library prints must not be taken for an answer.
    os.dup2(2, 1)

    def say(**answer):
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        code = _serve(contender, orders, say)
    except Unsupported as error:
        say(answer="failed", unsupported=True, reason=str(error))
        code = 1
    except Exception as error:  # whatever it is, a person should read it
        say(answer="failed", reason=f"{type(error).__name__}: {error}")
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of libraries must not keep a role from ending.
    os._exit(code)
