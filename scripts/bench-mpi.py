#!/usr/bin/env python3
"""Compares MPI over TCP with the same program over TIPC (`crossway run --via tipc`), between two hosts of a virtual network, in
interleaved rounds. Each rank checks every byte.

    bench-mpi.py [--rounds N] [--scale X] [--crossway PROGRAM] [--library FILE]

Prints the median ratios to TCP of the same MPI within a round, and then all medians with the quarters of the ratios.
Needs root, and Open MPI or MPICH.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Key, heading, and whether a larger value is better.
FIGURES = [
    ("latency_8", "8 B, one way", False),
    ("latency_64k", "64 KiB, one way", False),
    ("messages_8", "8 B, 64 in flight", True),
    ("bytes_64k", "64 KiB, 64 in flight", True),
    ("halo", "grid with halo", False),
]
AGENT = """#!/bin/sh
# Starts a command on a host of the network, in place of ssh.
while [ "${1#-}" != "$1" ]; do shift; done
case $1 in
%s
*) echo "unknown host $1" >&2; exit 1 ;;
esac
shift
exec ip netns exec $space unshare --uts sh -c "hostname $name; $*"
"""


class Network:
    """Two hosts, with a tipcd each."""

    def __init__(self, crossway, folder):
        self.crossway, self.folder = crossway, folder
        up = subprocess.run([crossway, "net", "up", "--hosts", "a,b", "--json"], capture_output=True, text=True, check=True)
        network = json.loads(up.stdout)
        self.name, self.hosts = network["name"], network["hosts"]
        self.tipcds = []
        for host in self.hosts:
            path = f"{folder}/{host['name']}.sock"
            argv = ["ip", "netns", "exec", host["namespace"], crossway, "tipcd", "--quiet", "--socket", path]
            self.tipcds.append(subprocess.Popen([*argv, "--id", host["name"], f"eth:{host['interface']}"]))
        deadline = time.monotonic() + 20
        while '"up": true' not in self.links() and '"up":true' not in self.links():
            if time.monotonic() > deadline:
                sys.exit("the two tipcds do not find each other")
            time.sleep(0.1)

    def links(self):
        argv = [self.crossway, "tipc", "--socket", f"{self.folder}/a.sock", "--json", "link", "list"]
        return subprocess.run(argv, capture_output=True, text=True).stdout

    def agent(self, one_node):
        """A program that starts commands on the hosts; their tipcds are two, or with `one_node` that of the first."""
        cases = []
        for host in self.hosts:
            path = f"{self.folder}/{'a' if one_node else host['name']}.sock"
            space = host["namespace"]
            cases.append(f"{host['ipv4']}) space={space} name={host['name']}; export TIPCD_SOCKET={path} ;;")
        agent = Path(self.folder) / ("agent-one" if one_node else "agent-two")
        agent.write_text(AGENT % "\n".join(cases))
        agent.chmod(0o755)
        return agent

    def down(self):
        for tipcd in self.tipcds:
            tipcd.terminate()
            tipcd.wait()
        subprocess.run([self.crossway, "net", "down", self.name], check=True)


def open_mpi(network, agent):
    # The hosts' interfaces may have different names, but one network.
    subnet = str(network.hosts[0]["ipv4"]).rsplit(".", 1)[0] + ".0/24"
    parameters = {
        "plm_rsh_agent": agent, "btl": "self,tcp", "pml": "ob1", "btl_tcp_if_include": subnet,
        "oob_tcp_if_include": subnet, "mpi_yield_when_idle": 1,
    }
    words = [word for name, value in parameters.items() for word in ("--mca", name, str(value))]
    hosts = ",".join(host["ipv4"] for host in network.hosts)
    return ["mpirun.openmpi", "--allow-run-as-root", *words, "--host", hosts, "-np", "2"]


def mpich(network, agent):
    hosts = ",".join(host["ipv4"] for host in network.hosts)
    words = ["-launcher", "ssh", "-launcher-exec", str(agent), "-hosts", hosts]
    # Debian's is built for UCX, others for libfabric; shared memory would be found, because the hosts are one machine.
    words += ["-localhost", network.hosts[0]["ipv4"], "-genv", "UCX_TLS", "tcp,self", "-genv", "FI_PROVIDER", "tcp"]
    return ["mpirun.mpich", *words, "-np", "2", "-ppn", "1"]


def measure(start, network, agent, prefix, program, scale):
    host = network.hosts[0]
    argv = [str(agent), host["ipv4"], *start(network, agent), *prefix, program, str(scale)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600)
    figures = {name: float(value) for name, value in (line.split() for line in done.stdout.splitlines() if line)}
    if done.returncode or any(key not in figures for key, _, _ in FIGURES):
        sys.exit(f"{' '.join(argv)}\n{done.stdout}{done.stderr}")
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--crossway", default=f"{ROOT}/target/release/crossway")
    parser.add_argument("--library", help="path of libcrossway_preload.so [default: that of the program]")
    args = parser.parse_args()
    kinds = [("Open MPI", "openmpi", open_mpi), ("MPICH", "mpich", mpich)]
    found = [kind for kind in kinds if shutil.which(f"mpirun.{kind[1]}") and shutil.which(f"mpicc.{kind[1]}")]
    if not found:
        sys.exit("MPI is missing: apt-get install openmpi-bin libopenmpi-dev (or mpich)")
    if os.geteuid():
        sys.exit("a network of virtual hosts needs root")
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        programs = {}
        for name, short, _ in found:
            programs[name] = f"{folder}/exchange-{short}"
            subprocess.run([f"mpicc.{short}", "-O2", "-o", programs[name], str(ROOT / "scripts/mpi/exchange.c")], check=True)
        network = Network(args.crossway, folder)
        explained = f"{folder}/explained"
        library = ["--library", args.library] if args.library else []
        run = [args.crossway, "run", *library, "--via", "tipc", f"--explain={explained}", "--"]
        two, one = network.agent(False), network.agent(True)
        ways = [("TCP", two, []), ("TIPC", two, run), ("TIPC, one node", one, run)]
        try:
            for _ in range(args.rounds):
                for name, _, start in found:
                    for way, agent, prefix in ways:
                        before = carried(explained)
                        got = measure(start, network, agent, prefix, programs[name], args.scale)
                        if prefix and carried(explained) < before + 2:
                            sys.exit(f"{name}: the ranks' connection did not travel by TIPC:\n" + Path(explained).read_text())
                        results.setdefault((name, way), []).append(got)
        finally:
            network.down()
    sums = {figures["halo_sum"] for all_figures in results.values() for figures in all_figures}
    if len(sums) != 1:
        sys.exit(f"the grid's sums differ: {sums}")
    report(found, [way for way, _, _ in ways], results)


def carried(explained):
    """How many ends of connections have travelled by TIPC so far."""
    path = Path(explained)
    return path.read_text().count("TIPC in place of TCP") if path.exists() else 0


def report(found, ways, results):
    print("| MPI | carried by | " + " | ".join(heading for _, heading, _ in FIGURES) + " | of it in MPI |")
    print("|---|---|" + "---:|" * (len(FIGURES) + 1))
    for name, _, _ in found:
        for way in ways:
            cells = [cell(results, name, way, key, larger) for key, _, larger in FIGURES]
            share = statistics.median(figures["halo_share"] for figures in results[name, way])
            print(f"| {name} | {way} | " + " | ".join(cells) + f" | {share:.0%} |")


def cell(results, name, way, key, larger):
    """For TCP the median, otherwise the median ratio of times to TCP within a round, with the quarters."""
    values = [figures[key] for figures in results[name, way]]
    base = [figures[key] for figures in results[name, "TCP"]]
    if way == "TCP":
        median = statistics.median(values)
        if key == "bytes_64k":
            return f"{median / 1e6:.0f} MB/s"
        return f"{median:,.0f} /s" if larger else f"{median * 1e6:,.0f} us" if median < 0.1 else f"{median:.2f} s"
    ratios = sorted(was / now if larger else now / was for was, now in zip(base, values))
    quarter = len(ratios) // 4
    return f"{statistics.median(ratios):.2f} ({ratios[quarter]:.2f} to {ratios[-1 - quarter]:.2f})"


if __name__ == "__main__":
    main()
