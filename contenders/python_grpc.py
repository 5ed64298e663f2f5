"""gRPC: one call with a stream of messages each way, over a UNIX socket, bytes without protobuf around them."""

import os
import platform
import queue
from concurrent.futures import ThreadPoolExecutor

import grpc

import crossway_contender

METHOD = "Carry"
SERVICE = "crossway.Contender"
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
# gRPC takes messages from an iterator; this many wait in the queue.
QUEUED = 64


class Grpc:
    def __init__(self):
        self.outgoing = queue.Queue(QUEUED)
        self.calls = queue.Queue()
        self.over = False

    def library(self):
        return f"grpcio {grpc.__version__}, Python {platform.python_version()}"

    def stream(self):
        while (message := self.outgoing.get()) is not None:
            yield message

    def serve(self, requests, context):
        context.add_callback(self.gone)
        context.send_initial_metadata(())
        self.calls.put(requests)
        yield from self.stream()

    def gone(self):
        self.over = True

    def listen(self, role):
        path = os.path.join(role.dir, "s")
        self.server = grpc.server(ThreadPoolExecutor(max_workers=2), options=OPTIONS)
        handler = grpc.stream_stream_rpc_method_handler(self.serve)
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
        self.server.add_insecure_port(f"unix:{path}")
        self.server.start()
        return {"target": f"unix:{path}"}

    def accept(self):
        self.incoming = self.calls.get()

    def connect(self, role, words):
        self.channel = grpc.insecure_channel(words["target"], options=OPTIONS)
        call = self.channel.stream_stream(f"/{SERVICE}/{METHOD}")(self.stream(), wait_for_ready=True)
        call.add_callback(self.gone)
        call.initial_metadata()
        self.incoming = call

    def send(self, message):
        # The buffer is reused before gRPC has sent it.
        message = bytes(message)
        while True:
            try:
                return self.outgoing.put(message, timeout=0.5)
            except queue.Full:
                if self.over:
                    raise ConnectionError("the peer has closed the channel") from None

    def receive(self, size):
        return next(self.incoming)

    def close(self):
        self.outgoing.put(None)
        if hasattr(self, "server"):
            self.server.stop(grace=2).wait(3)


crossway_contender.main(Grpc())
