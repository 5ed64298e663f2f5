#!/usr/bin/env python3
"""Runs a cluster of many `tipcd`s, each in a network namespace of its own, and says how long it takes until all links are up,
what a node costs at rest, when a name is seen by all, and when all know that ten nodes were killed:

    sudo scripts/large-cluster.py [NODES] [PROGRAM]

200 nodes and target/release/crossway by default. Needs root and iproute2. The nodes are asked one after the other, so times are
upper bounds.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time

NET = "big"
KILLED = 10
REST_S = 15
LIMIT_S = 120
# Binds a name by AF_TIPC and says when.
PUBLISH = """
import socket, time
named = socket.socket(socket.AF_TIPC, socket.SOCK_RDM)
begin = time.time()
named.bind((socket.TIPC_ADDR_NAMESEQ, 54321, 7, 7, socket.TIPC_CLUSTER_SCOPE))
print(begin, flush=True)
time.sleep(1000)
"""


class Cluster:
    def __init__(self, count, program, folder):
        self.program, self.folder, self.nodes = program, folder, []
        names = ",".join(f"n{at}" for at in range(count))
        subprocess.run([program, "net", "up", "--hosts", names, "--name", NET], check=True, stdout=subprocess.DEVNULL)
        for at in range(count):
            # `net exec` is replaced by the tipcd, so the process is the node.
            node = [program, "net", "exec", f"{NET}/n{at}", "--", program, "tipcd", "--quiet"]
            node += ["--id", f"n{at}", "--socket", self.socket(at), "eth:eth0"]
            self.nodes.append(subprocess.Popen(node, stdin=subprocess.DEVNULL))

    def socket(self, at):
        return f"{self.folder}/{at}"

    def links(self, at):
        """How many links of a node are up; the one for broadcast counts as the node itself."""
        words = [self.program, "tipc", "--socket", self.socket(at), "link", "list"]
        said = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S).stdout
        return sum(line.endswith(": up") for line in said.splitlines())

    def until(self, who, links):
        """Waits until each of these nodes has as many links; returns the seconds."""
        begin = time.time()
        waiting = list(who)
        while waiting:
            if time.time() - begin > LIMIT_S:
                sys.exit(f"node {waiting[0]} has {self.links(waiting[0])} links after {LIMIT_S} s, not {links}")
            waiting = [at for at in waiting if self.links(at) != links]
        return time.time() - begin

    def use(self):
        """CPU seconds of all nodes, and bytes of memory that they share with nobody."""
        ticks, memory = 0, 0
        for node in self.nodes:
            with open(f"/proc/{node.pid}/stat") as stat:
                words = stat.read().rsplit(")", 1)[1].split()
            ticks += int(words[11]) + int(words[12])
            with open(f"/proc/{node.pid}/smaps_rollup") as maps:
                memory += sum(int(line.split()[1]) * 1024 for line in maps if line.startswith("Private_Dirty:"))
        return ticks / os.sysconf("SC_CLK_TCK"), memory

    def seen(self):
        """Publishes a name; returns how long it takes until each node has seen it, sorted, in seconds."""
        waits = ["wait", "--service", "54321:7", "--timeout", str(LIMIT_S)]
        ends = [
            subprocess.Popen([self.program, "tipc", "--socket", self.socket(at), *waits], stdout=subprocess.DEVNULL)
            for at in range(len(self.nodes))
        ]
        time.sleep(5 + len(ends) / 20)
        environment = dict(os.environ, TIPCD_SOCKET=self.socket(0))
        words = [self.program, "tipc", "run", "--", sys.executable, "-c", PUBLISH]
        publisher = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)
        begin, took = float(publisher.stdout.readline()), {}
        while len(took) < len(ends):
            for at, end in enumerate(ends):
                if at not in took and end.poll() is not None:
                    took[at] = time.time() - begin
                    if end.returncode:
                        sys.exit(f"node {at} has not seen the name")
            time.sleep(0.005)
        publisher.kill()
        publisher.wait()
        return sorted(took.values())

    def down(self):
        for node in self.nodes:
            node.kill()
            node.wait()
        subprocess.run([self.program, "net", "down", NET], stdout=subprocess.DEVNULL)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    program = os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else "target/release/crossway")
    if os.geteuid() or not os.access(program, os.X_OK) or count <= 2 * KILLED:
        sys.exit(f"needs root, {program} (make build), and more than {2 * KILLED} nodes")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory() as folder:
        begin = time.time()
        cluster = Cluster(count, program, folder)
        try:
            print(f"{count} nodes started: {time.time() - begin:.1f} s", flush=True)
            cluster.until(range(count), count)
            print(f"all links are up: {time.time() - begin:.1f} s", flush=True)
            before, _ = cluster.use()
            time.sleep(REST_S)
            after, memory = cluster.use()
            percent = (after - before) / REST_S / count * 100
            print(f"at rest, each: {percent:.2f} % of a CPU, {memory / count / 1e6:.1f} MB of memory", flush=True)
            took = cluster.seen()
            half, last = took[count // 2], took[-1]
            print(f"a name is seen: by half of the nodes after {half:.2f} s, by all after {last:.2f} s", flush=True)
            for node in cluster.nodes[-KILLED:]:
                node.kill()
            took = cluster.until(range(count - KILLED), count - KILLED)
            print(f"{KILLED} nodes were killed: all others know after {took:.1f} s", flush=True)
        finally:
            cluster.down()


main()
