"""The other end, on this node or another, and how it is asked."""

import errno
import functools
import json
import os
import select
import signal
import socket as S
import time

from states_kit import bind, fill, name, outcome, OVER, PATIENCE

CONTROL = 19400


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

    @functools.cached_property
    def control(self):
        control = S.socket(S.AF_TIPC, S.SOCK_RDM)
        control.settimeout(PATIENCE)
        return control

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


peer = Remote()
