#!/usr/bin/env python3
"""The ends of the programs that bring no load of their own: peer.py KIND serve|ask ADDRESS [SECONDS].

`ask` makes one request after the other for SECONDS and prints how many per second; ADDRESS is a path (UNIX socket) or a port.
"""

import socket
import sys
import time


def connected(address):
    if "/" in address:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(address)
    else:
        sock = socket.create_connection(("127.0.0.1", int(address)))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def line_by_line(address, request, end):
    """A request in a connection that stays open; the answer ends with `end`."""
    sock = connected(address)

    def ask():
        sock.sendall(request)
        answer = b""
        while not answer.endswith(end):
            part = sock.recv(65536)
            if not part:
                sys.exit("the server closed the connection")
            answer += part

    return ask


def memcached(address):
    sock = connected(address)
    sock.sendall(b"set key 0 0 100\r\n" + b"x" * 100 + b"\r\n")
    sock.recv(100)
    sock.close()
    return line_by_line(address, b"get key\r\n", b"END\r\n")


def http(address):
    return line_by_line(address, b"GET /page HTTP/1.1\r\nHost: a\r\n\r\n", b"the end\n")


def mariadb(address):
    import pymysql

    where = {"unix_socket": address} if "/" in address else {"host": "127.0.0.1", "port": int(address)}
    cursor = pymysql.connect(user="root", **where).cursor()

    def ask():
        cursor.execute("SELECT 1")
        cursor.fetchall()

    return ask


def dbus(address):
    import dbus.bus

    url = "unix:path=" + address if "/" in address else "tcp:host=127.0.0.1,family=ipv4,port=" + address
    daemon = dbus.bus.BusConnection(url).get_object("org.freedesktop.DBus", "/org/freedesktop/DBus", introspect=False)
    return lambda: daemon.GetId(dbus_interface="org.freedesktop.DBus")


def zmq_socket(kind, address):
    import zmq

    sock = zmq.Context().socket(getattr(zmq, kind))
    return sock, ("ipc://" + address if "/" in address else "tcp://127.0.0.1:" + address)


def zeromq(address):
    sock, url = zmq_socket("REQ", address)
    sock.connect(url)

    def ask():
        sock.send(b"x" * 100)
        sock.recv()

    return ask


def serve_zeromq(address):
    sock, url = zmq_socket("REP", address)
    sock.bind(url)
    while True:
        sock.send(sock.recv())


def multiprocessing_address(address):
    return address if "/" in address else ("127.0.0.1", int(address))


def multiprocessing(address):
    from multiprocessing.connection import Client

    connection = Client(multiprocessing_address(address))

    def ask():
        connection.send(("add", 1, 2))
        connection.recv()

    return ask


def serve_multiprocessing(address):
    from multiprocessing.connection import Listener

    with Listener(multiprocessing_address(address)) as listener:
        while True:
            connection = listener.accept()
            try:
                while True:
                    _, a, b = connection.recv()
                    connection.send(a + b)
            except EOFError:
                pass


def grpc_target(address):
    return "unix:" + address if "/" in address else "127.0.0.1:" + address


def grpc(address):
    import grpc

    call = grpc.insecure_channel(grpc_target(address)).unary_unary("/test.Echo/Echo")
    return lambda: call(b"x" * 100, wait_for_ready=True)


def serve_grpc(address):
    from concurrent.futures import ThreadPoolExecutor

    import grpc

    server = grpc.server(ThreadPoolExecutor(max_workers=1))
    echo = {"Echo": grpc.unary_unary_rpc_method_handler(lambda request, _: request)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", echo),))
    server.add_insecure_port(grpc_target(address))
    server.start()
    server.wait_for_termination()


def main():
    kind, what, address = sys.argv[1:4]
    if what == "serve":
        globals()["serve_" + kind](address)
    ask = globals()[kind](address)
    ask()
    count, begin = 0, time.monotonic()
    until = begin + float(sys.argv[4])
    while time.monotonic() < until:
        for _ in range(20):
            ask()
        count += 20
    print(count / (time.monotonic() - begin))


main()
