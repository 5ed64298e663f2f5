"""asyncio streams over a UNIX socket: an event loop at each end, a coroutine that awaits each message."""

import asyncio
import os
import platform

import crossway_contender


class AsyncioStreams:
    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.run = self.loop.run_until_complete

    def library(self):
        return f"asyncio of {platform.python_implementation()} {platform.python_version()}"

    def listen(self, role):
        path = os.path.join(role.dir, "s")
        self.opened = self.loop.create_future()
        limit = max(role.size_bytes, 65536)
        self.server = self.run(asyncio.start_unix_server(lambda *ends: self.opened.set_result(ends), path, limit=limit))
        return {"path": path}

    def accept(self):
        self.begin(*self.run(self.opened))
        self.server.close()

    def connect(self, role, words):
        limit = max(role.size_bytes, 65536)
        self.begin(*self.run(asyncio.open_unix_connection(words["path"], limit=limit)))

    def begin(self, reader, writer):
        self.reader, self.writer = reader, writer
        # The loop runs only within send and receive: drain must wait until the socket has taken everything.
        writer.transport.set_write_buffer_limits(0)

    def send(self, message):
        # The transport keeps what the socket does not accept, and the next message is written into the same
        # buffer.
        self.writer.write(bytes(message))
        self.run(self.writer.drain())

    def receive(self, size):
        return self.run(self.reader.readexactly(size))

    def close(self):
        self.writer.close()
        try:
            self.run(self.writer.wait_closed())
        except OSError:
            pass


crossway_contender.main(AsyncioStreams())
