"""Sends numbered messages and checks the answers: python3 client.py ADDRESS COUNT"""
import struct
import sys

import channel


def main():
    address, count = sys.argv[1], int(sys.argv[2])
    link, number, reconnects = channel.connected(address), 0, 0
    while number < count:
        request = struct.pack("<Q", number)
        try:
            link.send(request)
            if link.receive() != request:
                raise ConnectionError("the answer is not the request's")
        except (OSError, channel.Idle):
            # The server may or may not have processed this request: it is sent again on a new connection.
            link.close()
            link, reconnects = channel.connected(address), reconnects + 1
            print("reconnected", flush=True)
            continue
        number += 1
        if number == 1 or number % 1000 == 0:
            print(f"answered {number}", flush=True)
    print(f"done {count}, reconnected {reconnects}", flush=True)
    link.close()


main()
