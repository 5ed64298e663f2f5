"""The two ends of a test of `crossway run --via tipc`: `server PORT` and `client ADDRESS PORT WHAT`."""

import os
import select
import socket
import sys
import threading

SIZE = 3_000_000
PATTERN = bytes(range(256)) * 4096


def rest(connection):
    """Everything until the end of the stream."""
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def serve(connection):
    request = connection.recv(1)
    if request == b"e":  # echo, until the client ends its direction
        data = rest(connection)
        assert connection.getpeername()[0].startswith("10."), connection.getpeername()
        connection.sendall(data)
        connection.close()
    elif request == b"f":  # a child answers
        if os.fork() == 0:
            connection.sendall(b"child")
            os._exit(0)
        os.wait()
        connection.close()
    elif request == b"k":  # dies with everything sent
        connection.sendall(PATTERN)
        os.kill(os.getpid(), 9)
    elif request == b"w":  # waits for the client's end
        connection.sendall(b"ready")
        try:
            connection.sendall(b"end" if connection.recv(1) == b"" else b"more")
        except OSError:
            pass


def server(port):
    listener = socket.create_server(("0.0.0.0", port), backlog=128)
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


def many(address, port, count):
    """Connections that are made at once, each with an echo."""
    right = []

    def one():
        with socket.create_connection((address, port)) as connection:
            connection.sendall(b"e" + PATTERN[:20_000])
            connection.shutdown(socket.SHUT_WR)
            right.append(rest(connection) == PATTERN[:20_000])

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * count, len(right)


def client(address, port, what):
    if what == "many":
        for _ in range(4):
            many(address, port, 50)
        print("right")
        return
    if what == "nobody":
        try:
            socket.create_connection((address, port))
        except ConnectionRefusedError:
            print("refused")
        return
    connection = socket.socket()
    if what == "nonblocking":
        connection.setblocking(False)
        poller = select.epoll()
        poller.register(connection, select.EPOLLOUT)
        connection.connect_ex((address, port))
        assert poller.poll(20)
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        connection.setblocking(True)
    else:
        connection.connect((address, port))
    assert connection.getpeername() == (address, port), connection.getpeername()
    if what in ("echo", "nonblocking"):
        data = (PATTERN * 3)[:SIZE]
        connection.sendall(b"e")
        sender = threading.Thread(
            target=lambda: (connection.sendall(data), connection.shutdown(socket.SHUT_WR))
        )
        sender.start()
        assert rest(connection) == data
        sender.join()
    elif what == "fork":
        connection.sendall(b"f")
        assert rest(connection) == b"child"
    elif what == "kill":
        connection.sendall(b"k")
        assert rest(connection) == PATTERN
    elif what == "lose":
        connection.sendall(b"w")
        assert connection.recv(5) == b"ready"
        print("waiting", flush=True)
        try:
            print("ended" if connection.recv(1) == b"" else "more")
        except ConnectionResetError:
            print("reset")
        return
    print("right")


if sys.argv[1] == "server":
    server(int(sys.argv[2]))
else:
    client(sys.argv[2], int(sys.argv[3]), sys.argv[4])
