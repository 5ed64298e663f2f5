"""Receives numbered messages and counts what is lost: python3 subscriber.py ADDRESS COUNT"""
import struct
import sys

import channel


def main():
    address, count = sys.argv[1], int(sys.argv[2])
    link, expected, received, lost, reconnects = channel.connected(address), None, 0, 0, 0
    while received < count:
        try:
            (number,) = struct.unpack("<Q", link.receive())
        except (OSError, channel.Idle, struct.error):
            # The publisher closed, died, or has been silent for channel.DEADLINE_S.
            link.close()
            link, expected, reconnects = channel.connected(address), None, reconnects + 1
            print("reconnected", flush=True)
            continue
        if expected is not None:
            lost += number - expected  # This subscriber was too slow.
        expected = number + 1
        received += 1
        if received == 1 or received % 1000 == 0:
            print(f"received {received}", flush=True)
    print(f"done {count}, lost {lost}, reconnected {reconnects}", flush=True)
    link.close()


main()
