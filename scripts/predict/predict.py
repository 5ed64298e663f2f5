#!/usr/bin/env python3
"""Checks the predictions of `crossway advise --observed` against reality.

    predict.py [--program NAME]... [--rounds N] [--seconds S] [--crossway PROGRAM] [--write FILE]

Each program runs over TCP. Its rate is measured, then it is recorded, and Crossway predicts its gain from a UNIX socket and from
`crossway run`. Then it runs in these ways in turn, and the table has the predicted and the achieved gains: the part of its time
that the change saves.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))

from programs import LONG, PROGRAMS
from resampling import interval

BEGIN, END = "<!-- predict: begin -->", "<!-- predict: end -->"
POINTS = 0.10


def measured(program, way, seconds):
    """Requests per second."""
    argv = [*program.user, *program.prefix, *program.load(way, seconds)]
    load = subprocess.run(argv, capture_output=True, text=True, timeout=LONG)
    if load.returncode:
        raise RuntimeError(f"the load of {program.name} failed: {load.stderr.strip()[-300:]}")
    return program.rate(load.stdout)


def recorded(crossway, program, way, seconds, into):
    """Records the program while it works."""
    argv = [*program.user, *program.load(way, LONG)]
    load = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(1)
        client = [load.pid] if program.records_load else []
        pids = [str(pid) for pid in [*client, *program.observed()]]
        said = subprocess.run(
            [*crossway, "observe", *pids, "--record", into, "--time", str(seconds)], capture_output=True, text=True
        )
        if said.returncode:
            raise RuntimeError(f"recording failed: {said.stderr.strip()}")
    finally:
        load.kill()
        load.wait()


def predicted(crossway, recording, rate, folder):
    argv = [*crossway, "advise", "--observed", recording, "--instead", "uds-stream", "--instead", "run", "--json", "--records", folder]
    if rate:
        argv += ["--real-rate", str(rate)]
    said = subprocess.run(argv, capture_output=True, text=True)
    if said.returncode:
        raise RuntimeError(f"no prediction: {said.stderr.strip() or said.stdout.strip()}")
    return json.loads(said.stdout)


def examine(crossway, kind, rounds, seconds):
    with tempfile.TemporaryDirectory(prefix="crossway-predict-") as folder:
        os.chmod(folder, 0o755)
        program = kind(folder)
        # Programs that run as somebody else can start it only where they can read it.
        for file in (crossway[0], f"{Path(crossway[0]).parent}/libcrossway_preload.so"):
            shutil.copy(file, folder)
        own = f"{folder}/{Path(crossway[0]).name}"
        try:
            program.start("tcp")
            measured(program, "tcp", seconds / 4)
            rate = statistics.median(measured(program, "tcp", seconds) for _ in range(3))
            recording = f"{folder}/recording"
            recorded(crossway, program, "tcp", 3, recording)
            program.stop()
            gain = predicted(crossway, recording, rate, f"{folder}/out")
            alone = predicted(crossway, recording, None, f"{folder}/out")
            saved = {"unix": [], "run": []}
            for _ in range(rounds):
                rates = {}
                for way in random.sample(["tcp", "unix", "run"], 3):
                    # Unmodified: it still means TCP.
                    asked = "tcp" if way == "run" else way
                    program.prefix = [own, "run", "--cpu-budget", "100%", "--"] if way == "run" else []
                    program.start(asked)
                    measured(program, asked, seconds / 4)
                    rates[way] = measured(program, asked, seconds)
                    program.stop()
                for way, gains in saved.items():
                    gains.append(1 - rates["tcp"] / rates[way])
        finally:
            program.stop()
    return gain, alone, rate, {way: interval(gains) for way, gains in saved.items()}


def percent(share):
    return f"{share * 100:.0f} %"


def span(gain, unmodified):
    """The predicted gain from a UNIX socket or from `crossway run`."""
    [with_it] = [way["less_time"] for way in gain["with"] if way["unmodified"] == unmodified] or [None]
    return with_it and (with_it["low"], with_it["high"])


def row(kind, gain, alone, rate, achieved):
    def said(interval):
        return f"{percent(interval[0])} to {percent(interval[1])}" if interval else "–"

    def got(interval):
        middle, least, most = interval
        return f"{percent(middle)} ({percent(least)} to {percent(most)})"

    predicted, unmodified = span(gain, False), span(gain, True)
    # A wide interval does not make a good prediction: its middle counts.
    off = abs(sum(predicted) / 2 - achieved["unix"][0])
    return (
        f"| {kind.name} | {rate:,.0f}/s | {said(predicted)} | {said(span(alone, False))} | {got(achieved['unix'])} "
        f"| {'yes' if off <= POINTS else 'no'} | {said(unmodified)} | {got(achieved['run'])} |"
    ), off <= POINTS


def main():
    root = Path(__file__).resolve().parent.parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", action="append", default=[], help="a part of a program's name")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--crossway", default=f"{root}/target/release/crossway")
    parser.add_argument("--write", type=Path, help="replace the table in this document")
    args = parser.parse_args()
    crossway = [args.crossway]
    chosen = [p for p in PROGRAMS if not args.program or any(word in p.name for word in args.program)]
    if not chosen:
        sys.exit(f"no program has such a name; there are: {'; '.join(p.name for p in PROGRAMS)}")
    lines = [
        "| Program | Over TCP | UNIX socket: predicted, rate known | From the recording alone | Achieved | Within 10 points | `crossway run`: predicted | Achieved |",
        "|---|---:|---:|---:|---:|---|---:|---:|",
    ]
    print("\n".join(lines), flush=True)
    hits = 0
    for kind in chosen:
        why = kind.missing()
        if why:
            print(f"SKIP {kind.name}: {why}; remedy: scripts/setup.sh predict", file=sys.stderr)
            continue
        try:
            line, hit = row(kind, *examine(crossway, kind, args.rounds, args.seconds))
        except (RuntimeError, subprocess.SubprocessError, OSError) as error:
            print(f"FAILED {kind.name}: {error}", file=sys.stderr)
            continue
        hits += hit
        lines.append(line)
        print(line, flush=True)
    print(f"{hits} of {len(lines) - 2} within 10 percentage points", flush=True)
    if args.write:
        text = args.write.read_text()
        before, rest = text.split(BEGIN)
        after = rest.split(END)[1]
        args.write.write_text(before + BEGIN + "\n" + "\n".join(lines) + "\n" + END + after)


main()
