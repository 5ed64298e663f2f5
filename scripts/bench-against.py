#!/usr/bin/env python3
"""Compares this build with an earlier one: which cases became faster, which slower?

    bench-against.py [--commit COMMIT] [--rounds N] [--measure-ms MS] [--filter PATTERN]... [--json FILE]

Without --commit, it is the newest commit that `make bench` measured on a processor of the same kind (records/bench). Both are
built, each in a folder of its own below target/, and measured in turn: in each round both run all cases, in random order.
A ratio is the earlier build's time divided by this one's in the same round, or this one's rate by the earlier one's, so
more than 1 is faster. A case has moved if the interval of its median ratio does not contain 1, and the ratio is off by 3 %.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from resampling import interval

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
MOVED = 0.03
PLAN = """
about = "What `make bench-against` compares."
[group.transfer]
mechanisms = ["pipe", "uds-seqpacket", "shm-spin", "shm-futex", "shm-eventfd", "linx-shm", "tipc-node-seqpacket"]
workload = ["ping-pong", "throughput"]
size_bytes = [64, "4 KiB", "64 KiB"]
placement = "other-core"
trials = 1
warmup_ms = 50
measure_ms = 100
"""


def git(*args, where=ROOT):
    said = subprocess.run(["git", *args], cwd=where, capture_output=True, text=True)
    return said.stdout.strip() if said.returncode == 0 else None


def processor():
    """The kind of processor, as the files in records/bench are called."""
    facts = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, colon, value = line.partition(":")
        if colon and value.strip():
            facts.setdefault(name.strip(), value.strip())
    names = [("vendor_id",), ("cpu family", "CPU implementer"), ("model", "CPU part")]
    parts = [next((facts[name] for name in some if name in facts), None) for some in names]
    return "-".join("".join(c if c.isalnum() else "-" for c in part.lower()) for part in parts if part)


def newest():
    """The newest measured commit that is in the history, for this kind of processor."""
    path = ROOT / "records" / "bench" / f"{processor()}.jsonl"
    if not path.exists():
        sys.exit(f"{path} does not exist: nothing was measured on such a processor; state a commit with --commit")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in sorted(lines, key=lambda line: -line["measured_unix_ms"]):
        commit = line["commit"].removesuffix("-dirty")
        if git("merge-base", "--is-ancestor", commit, "HEAD") is not None:
            return commit
    sys.exit(f"no commit of {path} is in the history of this one; state a commit with --commit")


def build(source, target):
    argv = ["cargo", "build", "--release", "--locked", "-p", "crossway"]
    if subprocess.run(argv, cwd=source, env={**os.environ, "CARGO_TARGET_DIR": str(target)}).returncode:
        sys.exit(f"{source} cannot be built")
    return target / "release" / "crossway"


def earlier(commit):
    """Builds the commit in a work tree of its own, which stays for the next time."""
    folder = TARGET / "against" / commit[:12]
    if not folder.exists():
        git("worktree", "prune")
        if git("worktree", "add", "--detach", str(folder), commit) is None:
            sys.exit(f"cannot check out {commit}: is it in this repository? (git worktree add --detach {folder} {commit})")
    return build(folder, TARGET / "against" / "target")


def figures(program, plan, name, args, folder):
    """The figure of each case, more being faster."""
    argv = [program, "measure", plan, "--out", folder / name, "--measure-ms", str(args.measure_ms)]
    argv += [part for pattern in args.filter for part in ("--filter", pattern)]
    said = subprocess.run([str(part) for part in argv], capture_output=True, text=True)
    results = list((folder / name).glob("*/results.jsonl"))
    if not results:
        sys.exit(f"{program} measured nothing: {said.stderr.strip()}")
    found = {}
    for record in map(json.loads, results[0].read_text().splitlines()):
        if record["status"] != "ok":
            continue
        inputs = record["inputs"]
        case = (record["mechanism"], inputs["workload"], inputs["size_bytes"])
        exchanges = inputs["workload"] == "ping-pong"
        found[case] = 1e9 / record["latency_ns"][0]["p50"] if exchanges else record["throughput"]["msgs_per_s"]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commit", help="the earlier commit")
    parser.add_argument("--rounds", type=int, default=9, help="at least 5")
    parser.add_argument("--measure-ms", type=int, default=100)
    parser.add_argument("--filter", action="append", default=[], help="as of crossway measure")
    parser.add_argument("--json", type=Path, help="also write the ratios to this file")
    args = parser.parse_args()
    if args.rounds < 5:
        sys.exit("--rounds: an interval needs at least 5")
    commit = git("rev-parse", "--verify", "--quiet", f"{args.commit}^{{commit}}") if args.commit else newest()
    if not commit:
        sys.exit(f"--commit {args.commit}: no such commit")
    then, now = earlier(commit), build(ROOT, TARGET)
    pairs = {}
    with tempfile.TemporaryDirectory(prefix="crossway-against-") as folder:
        plan = Path(folder, "plan.toml")
        plan.write_text(PLAN)
        for turn in range(args.rounds):
            print(f"round {turn + 1} of {args.rounds}", file=sys.stderr)
            both = [(then, f"then-{turn}"), (now, f"now-{turn}")]
            got = {name: figures(program, plan, name, args, Path(folder)) for program, name in random.sample(both, 2)}
            before, after = got[f"then-{turn}"], got[f"now-{turn}"]
            for case in before.keys() & after.keys():
                pairs.setdefault(case, []).append(after[case] / before[case])
    print(f"this build against {commit[:12]}, processor {processor()}; more than 1 is faster\n")
    print("| case | ratio | interval | rounds | |\n|---|---:|---|---:|---|")
    kept = []
    for case, ratios in sorted(pairs.items()):
        name = f"{case[0]} {case[1]} {case[2]} B"
        if len(ratios) < 5:
            print(f"| {name} | – | too few rounds | {len(ratios)} | |")
            continue
        middle, low, high = interval(ratios)
        moved = abs(middle - 1) > MOVED and not low <= 1 <= high
        word = ("faster" if middle > 1 else "slower") if moved else ""
        print(f"| {name} | {middle:.2f} | {low:.2f} – {high:.2f} | {len(ratios)} | {word} |")
        kept.append({"case": name, "ratio": middle, "low": low, "high": high, "rounds": len(ratios), "verdict": word})
    slower = [line["case"] for line in kept if line["verdict"] == "slower"]
    print(f"\n{len(slower)} of {len(kept)} cases are slower{': ' if slower else ''}{'; '.join(slower)}")
    if args.json:
        args.json.write_text(json.dumps({"against": commit, "processor": processor(), "cases": kept}, indent=1) + "\n")


if __name__ == "__main__":
    main()
