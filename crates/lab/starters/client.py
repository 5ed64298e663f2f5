"""Sends numbered messages and checks the answers: python3 client.py ADDRESS COUNT"""
import socket
import struct
import sys
import time

import channel


def connect(address):
    pause = 0.01
    while True:
        sock = channel.set_up(socket.socket(channel.FAMILY, channel.TYPE))
        try:
            sock.connect(channel.address(address))
            return sock
        except OSError as error:
            sock.close()
            print(f"waiting for the server: {error}", file=sys.stderr)
            time.sleep(pause)
            pause = min(pause * 2, 0.5)


def main():
    address, count = sys.argv[1], int(sys.argv[2])
    sock, number, reconnects = connect(address), 0, 0
    while number < count:
        request = struct.pack("<Q", number)
        try:
            channel.send(sock, request)
            if channel.receive(sock) != request:
                raise ConnectionError("the answer is not the request's")
        except OSError:
            # The server may or may not have processed this request: it is sent again on a new connection.
            sock.close()
            sock, reconnects = connect(address), reconnects + 1
            print("reconnected", flush=True)
            continue
        number += 1
        if number == 1 or number % 1000 == 0:
            print(f"answered {number}", flush=True)
    print(f"done {count}, reconnected {reconnects}", flush=True)


main()
