"""Answers each message with the same bytes: python3 server.py ADDRESS"""
import os
import signal
import socket
import sys
import threading

import channel


def serve(sock):
    channel.set_up(sock)
    with sock:
        while True:
            try:
                channel.send(sock, channel.receive(sock))
            except socket.timeout:
                continue  # The client is silent; it may stay connected.
            except OSError:
                return  # The client closed, died or violated the protocol: only its own connection ends.


def main():
    address = sys.argv[1]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    listener = channel.listen(address)
    print("ready", flush=True)
    try:
        while True:
            sock, _ = listener.accept()
            threading.Thread(target=serve, args=(sock,), daemon=True).start()
    finally:
        if channel.FAMILY == socket.AF_UNIX:
            os.unlink(address)


main()
