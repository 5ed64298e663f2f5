#!/usr/bin/env python3
"""Compares programs with and without `crossway run`, in interleaved rounds: Redis with one client, with pipelining, with a
connection per request, and over its own UNIX socket.

    bench-run.py [--rounds N] [--requests N] [--with COMMAND]

COMMAND is `crossway run` without `--`.

Prints the median ratios to plain TCP within a round, time per request / CPU time per request of both programs, and then all
medians with the range of the ratios.
"""

import argparse
import os
import re
import resource
import shlex
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def cpu_of(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


class Redis:
    def __init__(self, folder, name, prefix):
        self.port, self.path = free_port(), f"{folder}/{name}.sock"
        argv = [*prefix, "redis-server", "--port", str(self.port), "--unixsocket", self.path, "--save", "", "--dir", folder]
        self.process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
        while subprocess.run(["redis-cli", "-s", self.path, "ping"], capture_output=True).stdout != b"PONG\n":
            time.sleep(0.05)

    def load(self, prefix, requests, more, unix):
        """Requests per second, and CPU time per request in microseconds."""
        where = ["-s", self.path] if unix else ["-p", str(self.port)]
        argv = [*prefix, "redis-benchmark", *where, "-n", str(requests), "-t", "get", "-d", "64", "--csv", *more]
        before = cpu_of(self.process.pid), resource.getrusage(resource.RUSAGE_CHILDREN)
        output = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        after = cpu_of(self.process.pid), resource.getrusage(resource.RUSAGE_CHILDREN)
        client = sum(getattr(after[1], what) - getattr(before[1], what) for what in ("ru_utime", "ru_stime"))
        rate = float(re.search(r'^"GET","([0-9.]+)"', output, re.M).group(1))
        return rate, (after[0] - before[0] + client) / requests * 1e6


def main():
    root = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--requests", type=int, default=40_000)
    parser.add_argument("--with", dest="prefix", default=f"{root}/target/release/crossway run")
    args = parser.parse_args()
    for program in ("redis-server", "redis-benchmark"):
        if not shutil.which(program):
            sys.exit(f"{program} is missing: install redis-server and redis-tools (scripts/setup.sh bench)")
    moved = shlex.split(args.prefix)
    with tempfile.TemporaryDirectory() as folder:
        sleeping, busy = [*moved, "--cpu-budget", "0", "--"], [*moved, "--cpu-budget", "100%", "--"]
        moved = [*moved, "--"]
        plain_server, moved_server = Redis(folder, "plain", []), Redis(folder, "moved", moved)
        sleeping_server, busy_server = Redis(folder, "sleeping", sleeping), Redis(folder, "busy", busy)
        servers = [plain_server, moved_server, sleeping_server, busy_server]
        # The way, the server, the client's prefix, and whether it uses the UNIX socket.
        ways = [
            ("TCP", plain_server, [], False),
            ("`crossway run`", moved_server, moved, False),
            ("`crossway run --cpu-budget 100%`", busy_server, busy, False),
            ("`crossway run --cpu-budget 0`", sleeping_server, sleeping, False),
            ("Redis' own UNIX socket", plain_server, [], True),
            ("the same, `crossway run`", moved_server, moved, True),
            ("TCP, `crossway run` for the client only", plain_server, moved, False),
        ]
        kinds = [
            ("one client, 64 B GET", ["-c", "1"], 1),
            ("one client, 16 in a pipeline", ["-c", "1", "-P", "16"], 10),
            ("50 clients", ["-c", "50"], 10),
            ("a connection per request", ["-c", "1", "-k", "0"], 0.5),
        ]
        results = {}
        try:
            for _ in range(args.rounds):
                for kind, more, factor in kinds:
                    for way, server, prefix, unix in ways:
                        got = server.load(prefix, int(args.requests * factor), more, unix)
                        results.setdefault((kind, way), []).append(got)
        finally:
            for server in servers:
                server.process.terminate()
                server.process.wait()
    print("| carried by | " + " | ".join(kind for kind, _, _ in kinds) + " |\n|---|" + "---:|" * len(kinds))
    for way, *_ in ways[1:]:
        cells = []
        for kind, _, _ in kinds:
            time_ratios, cpu_ratios = ratios(results, kind, way)
            cells.append(f"{statistics.median(time_ratios):.2f} / {statistics.median(cpu_ratios):.2f}")
        print(f"| {way} | " + " | ".join(cells) + " |")
    print("\n| Redis | carried by | requests/s | time per request, against TCP | CPU per request, against TCP |\n|---|---|---:|---:|---:|")
    for kind, _, _ in kinds:
        for way, *_ in ways:
            rate = statistics.median(rate for rate, _ in results[kind, way])
            time_ratios, cpu_ratios = ratios(results, kind, way)
            print(f"| {kind} | {way} | {rate:,.0f} | {shown(time_ratios)} | {shown(cpu_ratios)} |")


def ratios(results, kind, way):
    """Time and CPU time per request in each round, as ratios to plain TCP."""
    pairs = list(zip(results[kind, "TCP"], results[kind, way]))
    return sorted(base[0] / this[0] for base, this in pairs), sorted(this[1] / base[1] for base, this in pairs)


def shown(values):
    """The median with the quarters around it."""
    quarter = len(values) // 4
    return f"{statistics.median(values):.2f} ({values[quarter]:.2f} to {values[-1 - quarter]:.2f})"


if __name__ == "__main__":
    main()
