"""multiprocessing.Pipe: messages over the socket pair that the standard library makes for it."""

import os
import platform
import socket
from multiprocessing import Pipe, reduction
from multiprocessing.connection import Connection

import crossway_contender


class MultiprocessingPipe:
    def library(self):
        return f"{platform.python_implementation()} {platform.python_version()}"

    def listen(self, role):
        self.own, self.other = Pipe(duplex=True)
        self.path = os.path.join(role.dir, "hand-over")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.path)
        self.listener.listen(1)
        return {"path": self.path}

    def accept(self):
        # As multiprocessing does for a child: the descriptor is passed over a UNIX
        # socket.
        helper, _ = self.listener.accept()
        reduction.send_handle(helper, self.other.fileno(), None)
        helper.close()
        self.listener.close()
        self.other.close()

    def connect(self, role, words):
        helper = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        helper.connect(words["path"])
        self.own = Connection(reduction.recv_handle(helper))
        helper.close()

    def send(self, message):
        self.own.send_bytes(message)

    def receive(self, size):
        return self.own.recv_bytes(size)

    def close(self):
        self.own.close()


crossway_contender.main(MultiprocessingPipe())
