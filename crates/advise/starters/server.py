"""Answers each message with the same bytes: @SERVER_USE@"""
import signal
import sys
import threading

import channel


def serve(link):
@if dgram
    silent = 0  # Nothing reports the death of a client: one that is silent for a minute has gone.
@end
    while True:
        try:
            link.send(link.receive())
@if dgram
            silent = 0
@end
        except channel.Idle:
@if dgram
            silent += 1
            if silent > 30:
                break
@end
            continue  # The client is silent; it may stay connected.
        except OSError:
            break  # The client closed, died or violated the protocol: only its own connection ends.
    link.close()


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    listener = channel.Listener(sys.argv[1] if len(sys.argv) > 1 else "@NO_ADDRESS@")
    print("ready", file=sys.stderr, flush=True)
    try:
@if pipe
        serve(listener.accept())
@end
@if stream seqpacket dgram fifo
        while True:
            threading.Thread(target=serve, args=(listener.accept(),), daemon=True).start()
@end
    finally:
        listener.remove()


main()
