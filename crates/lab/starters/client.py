"""Sends numbered messages and checks the answers: python3 client.py ADDRESS COUNT"""
import struct
import sys
import time

import channel

PATIENCE_S = 30.0


def connect(address):
    """Connects; ends the program if there is no server for PATIENCE_S seconds."""
    pause, end = 0.01, time.monotonic() + PATIENCE_S
    while True:
        try:
            return channel.connect(address)
        except OSError as error:
            print(f"waiting for the server at {address}: {error}", file=sys.stderr)
            if time.monotonic() > end:
                sys.exit(1)
        time.sleep(pause)
        pause = min(pause * 2, 0.5)


def main():
    address, count = sys.argv[1], int(sys.argv[2])
    link, number, reconnects = connect(address), 0, 0
    while number < count:
        request = struct.pack("<Q", number)
        try:
            link.send(request)
            if link.receive() != request:
                raise ConnectionError("the answer is not the request's")
        except (OSError, channel.Idle):
            # The server may or may not have processed this request: it is sent again on a new connection.
            link.close()
            link, reconnects = connect(address), reconnects + 1
            print("reconnected", flush=True)
            continue
        number += 1
        if number == 1 or number % 1000 == 0:
            print(f"answered {number}", flush=True)
    print(f"done {count}, reconnected {reconnects}", flush=True)
    link.close()


main()
