"""Pairs of programs that use a TCP connection within the host in many ways, and print what each end observes. The output must
be the same with and without the preloaded library. `scenarios.py NAME..` runs only these.

Each scenario has a function for the end that accepts and one for the end that connects; they run in two processes. What an
end yields is printed. `step` makes one end wait for the other one.
"""

import errno
import os
import select
import signal
import socket
import sys

import scenario_calls  # noqa: F401 (its scenarios are run, too)
import scenario_closing  # noqa: F401
import scenario_data  # noqa: F401
import scenario_ends  # noqa: F401
import scenario_processes  # noqa: F401
import scenario_signals  # noqa: F401
from scenario_kit import APART, SCENARIOS, Steps


def connect(address, style):
    sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
    if style == "blocking":
        sock.connect(address)
    else:
        sock.setblocking(False)
        # As nginx does: registered before it is connected.
        edge = select.epoll()
        edge.register(sock, select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET)
        outcome = sock.connect_ex(address)
        assert outcome in (0, errno.EINPROGRESS), outcome
        while not (event := edge.poll(60)[0][1]) & select.EPOLLOUT:
            pass
        assert event & ~select.EPOLLIN == select.EPOLLOUT, event
        edge.close()
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        sock.setblocking(True)
    return sock


def stuck(name, style, children):
    for child in children:
        os.kill(child, signal.SIGKILL)
    sys.exit(f"{name} {style}: an end still waits after 150 s")


def run(name, family, style):
    function = {**SCENARIOS, **APART}[name]
    steps = Steps()
    listener = socket.socket(family)
    listener.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
    listener.listen(5)
    outputs = [os.pipe(), os.pipe()]
    children = []
    for end in (0, 1):
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)
            if end:
                address = listener.getsockname()
                listener.close()
                conn = connect(address, style)
                peer = {"own": address, "peer": conn.getsockname()}
            else:
                conn, address = listener.accept()
                peer = {"own": address, "peer": listener.getsockname()}
            for line in function(listener, conn, peer, end, steps) or ():
                os.write(outputs[end][1], f"{name} {style} {'connecting' if end else 'accepting'}: {line}\n".encode())
            os._exit(0)
        children.append(child)
    # By the parent: scenarios use the timer themselves, and one end would wait for the other for ever.
    signal.signal(signal.SIGALRM, lambda *_: stuck(name, style, children))
    signal.alarm(150)
    for end in (0, 1):
        os.waitpid(children[end], 0)
    signal.alarm(0)
    listener.close()
    for end in (0, 1):
        os.close(outputs[end][1])
        while part := os.read(outputs[end][0], 65536):
            sys.stdout.buffer.write(part)
        os.close(outputs[end][0])
    for pipe in (*steps.pipes, steps.signals):
        os.close(pipe[0])
        os.close(pipe[1])
    sys.stdout.flush()


for name in sys.argv[1:] or SCENARIOS:
    run(name, socket.AF_INET, "blocking")
    run(name, socket.AF_INET6, "non-blocking")
