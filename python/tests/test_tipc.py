"""crossway.tipc over a tipcd of its own. CROSSWAY_TIPC_LIBRARY and CROSSWAY_PROGRAM name what is tested."""

import asyncio
import os
import selectors
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

import crossway
from crossway import tipc

SERVICE = 4200


class TipcTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        try:
            tipc._lib()
        except OSError as error:
            raise unittest.SkipTest(str(error))
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = str(Path(cls.folder.name) / "tipcd.sock")
        command = [str(crossway.program()), "tipcd", "--socket", cls.path]
        cls.tipcd = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not os.path.exists(cls.path):
            if cls.tipcd.poll() is not None:
                raise RuntimeError(f"{command} ended with {cls.tipcd.returncode}")
            time.sleep(0.01)

    @classmethod
    def tearDownClass(cls):
        cls.tipcd.terminate()
        cls.tipcd.wait()
        cls.folder.cleanup()

    def socket(self, kind):
        one = tipc.Socket(kind, self.path)
        self.addCleanup(one.close)
        return one

    def test_a_message_by_name_and_its_answer_by_id(self):
        server, client = self.socket(tipc.SOCK_RDM), self.socket(tipc.SOCK_RDM)
        server.bind((tipc.ADDR_NAMESEQ, SERVICE, 1, 1))
        self.assertEqual(client.sendto(b"hello", (tipc.ADDR_NAME, SERVICE, 1, 0)), 5)
        data, sender = server.recvfrom(64)
        self.assertEqual((data, sender[:4]), (b"hello", client.getsockname()[:4]))
        server.sendto(data[::-1], sender)
        self.assertEqual(client.recv(64), b"olleh")

    def test_time_outs(self):
        one = self.socket(tipc.SOCK_RDM)
        one.settimeout(0)
        with self.assertRaises(BlockingIOError):
            one.recv(1)
        one.settimeout(0.3)
        began = time.monotonic()
        with self.assertRaises(TimeoutError):
            one.recv(1)
        self.assertGreaterEqual(time.monotonic() - began, 0.29)
        with self.assertRaises(ValueError):
            one.settimeout(-1)

    def test_a_blocking_call_longer_than_a_slice_gets_its_message(self):
        one, other = self.socket(tipc.SOCK_RDM), self.socket(tipc.SOCK_RDM)
        threading.Timer(0.5, other.sendto, (b"late", one.getsockname())).start()
        self.assertEqual(one.recv(8), b"late")

    def test_a_stream_with_a_selector(self):
        server, client = self.socket(tipc.SOCK_STREAM), self.socket(tipc.SOCK_STREAM)
        server.bind((tipc.ADDR_NAMESEQ, SERVICE, 2, 2))
        server.listen()
        accepted = []
        thread = threading.Thread(target=lambda: accepted.extend(server.accept()))
        thread.start()
        client.connect((tipc.ADDR_NAME, SERVICE, 2, 0))
        thread.join()
        connection, _ = accepted
        self.addCleanup(connection.close)
        with selectors.DefaultSelector() as ready:
            ready.register(connection, selectors.EVENT_READ)
            self.assertEqual(ready.select(0), [])
            content = bytes(range(256)) * 1024
            sending = threading.Thread(target=client.sendall, args=(content,))
            sending.start()
            self.assertTrue(ready.select(10))
        got = b""
        while len(got) < len(content):
            got += connection.recv(65536)
        sending.join()
        self.assertEqual(got, content)
        client.shutdown()
        self.assertEqual(connection.recv(1), b"")

    def test_coroutines(self):
        async def talk():
            server, client = self.socket(tipc.SOCK_SEQPACKET), self.socket(tipc.SOCK_SEQPACKET)
            server.bind((tipc.ADDR_NAMESEQ, SERVICE, 3, 3))
            server.listen()

            async def serve():
                connection, _ = await server.aaccept()
                with connection:
                    while data := await connection.arecv(100):
                        await connection.asend(data.upper())

            serving = asyncio.ensure_future(serve())
            await asyncio.sleep(0.05)
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, client.connect, (tipc.ADDR_NAME, SERVICE, 3, 0))
            answers = []
            for word in (b"one", b"two"):
                await client.asend(word)
                answers.append(await client.arecv(100))
            client.shutdown()
            await serving
            return answers

        self.assertEqual(asyncio.run(talk()), [b"ONE", b"TWO"])

    def test_a_service_that_nobody_offers_is_an_error(self):
        with self.assertRaises(OSError):
            self.socket(tipc.SOCK_SEQPACKET).connect((tipc.ADDR_NAME, SERVICE, 99, 0))
        closed = self.socket(tipc.SOCK_RDM)
        closed.close()
        closed.close()
        self.assertEqual(closed.fileno(), -1)
        with self.assertRaises(OSError):
            closed.recv(1)


if __name__ == "__main__":
    unittest.main()
