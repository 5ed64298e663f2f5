"""Sends every message to all subscribers: @SERVER_USE@"""
import collections
import signal
import struct
import sys
import threading
import time

import channel

KEPT = 1024
PAUSE_S = 0.001


class Messages:
    """The last messages. Each subscriber has a thread that sends them at the subscriber's pace. One that is slow loses
    the oldest; one that takes nothing for channel.DEADLINE_S is disconnected. Neither delays the others."""

    def __init__(self):
        self.kept, self.published = collections.deque(maxlen=KEPT), 0
        self.more = threading.Condition()

    def publish(self, message):
        with self.more:
            self.kept.append(message)
            self.published += 1
            self.more.notify_all()

    def at(self, number):
        """Waits for the message with this number; the oldest one if that is gone. Returns its number, too."""
        with self.more:
            self.more.wait_for(lambda: number < self.published)
            number = max(number, self.published - len(self.kept))
            return number, self.kept[number - self.published]


def serve(link, messages):
    number = messages.published  # A subscriber begins with the next message.
    try:
        while True:
            number, message = messages.at(number)
            link.send(message)
            number += 1
    except OSError:
        pass  # The subscriber closed, died or takes nothing: only its own connection ends.
    link.close()


def accept_all(listener, messages):
    while True:
        threading.Thread(target=serve, args=(listener.accept(), messages), daemon=True).start()


def main():
    if len(sys.argv) != 2:
        raise SystemExit("usage: @SERVER_USE@")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    listener, messages, number = channel.Listener(sys.argv[1]), Messages(), 0
    threading.Thread(target=accept_all, args=(listener, messages), daemon=True).start()
    print("ready", file=sys.stderr, flush=True)
    try:
        while True:
            messages.publish(struct.pack("<Q", number))  # What is published; here a number.
            number += 1
            time.sleep(PAUSE_S)
    finally:
        listener.remove()


main()
