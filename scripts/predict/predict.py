#!/usr/bin/env python3
"""Checks the predictions of `crossway advise --observed` against reality.

    predict.py [--program NAME]... [--placement apart|together|free] [--rounds N] [--seconds S] [--crossway PROGRAM]
               [--keep FOLDER] [--write FILE]

Each program runs over TCP. Its rate is measured, then it is recorded, and Crossway predicts its gain from a UNIX socket (Open MPI:
from shared memory) and from `crossway run`. Then it runs in these ways in turn, and the table has the predicted and the achieved gains:
the part of its time that the change saves.

The kernel lets programs that take turns share a CPU or use two, and may change that from one second to the next, which can
make a program three times as fast. So the load and the servers have a CPU each, unless --placement says otherwise.
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

from programs import LONG, PROGRAMS

BEGIN, END = "<!-- predict: begin -->", "<!-- predict: end -->"
POINTS = 0.10


def measured(program, way, seconds):
    """Requests per second."""
    load = subprocess.run(program.loaded(way, seconds), capture_output=True, text=True, timeout=LONG)
    if load.returncode:
        raise RuntimeError(f"the load of {program.name} failed: {load.stderr.strip()[-300:]}")
    return program.rate(load.stdout)


def recorded(crossway, program, way, seconds, into):
    """Records the program while it works."""
    load = subprocess.Popen(program.loaded(way, LONG), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
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


def predicted(crossway, recording, instead, rate, folder):
    argv = [*crossway, "advise", "--observed", recording, "--instead", instead, "--instead", "run", "--json", "--records", folder]
    if rate:
        argv += ["--real-rate", str(rate)]
    said = subprocess.run(argv, capture_output=True, text=True)
    if said.returncode:
        raise RuntimeError(f"no prediction: {said.stderr.strip() or said.stdout.strip()}")
    return json.loads(said.stdout)


def tried(crossway, kind, cpus, rounds, seconds, recording):
    """Records the program, and then runs it in all ways in turn: its rates before, and those of each round."""
    with tempfile.TemporaryDirectory(prefix="crossway-predict-") as folder:
        os.chmod(folder, 0o755)
        program = kind(folder)
        program.cpus = cpus
        # Programs that run as somebody else can start it only where they can read it.
        for file in (crossway[0], f"{Path(crossway[0]).parent}/libcrossway_preload.so"):
            shutil.copy(file, folder)
        own = f"{folder}/{Path(crossway[0]).name}"
        try:
            before = []
            for _ in range(rounds):
                program.stop()
                program.start("tcp")
                measured(program, "tcp", seconds / 4)
                before.append(measured(program, "tcp", seconds))
            recorded(crossway, program, "tcp", 3, recording)
            program.stop()
            rates = {"tcp": [], "unix": [], "run": []}
            for _ in range(rounds):
                for way in random.sample(list(rates), len(rates)):
                    # Unmodified: it still means TCP.
                    asked = "tcp" if way == "run" else way
                    program.prefix = [own, "run", "--cpu-budget", "100%", "--"] if way == "run" else []
                    program.start(asked)
                    measured(program, asked, seconds / 4)
                    rates[way].append(measured(program, asked, seconds))
                    program.stop()
        finally:
            program.stop()
    return {"before": before, "rates": rates}


def saved(before, after):
    """The part of the time of a request that was saved on the average of the rounds, and the range that holds 95 % of
    those of resampled rounds. Programs are several times as fast in some rounds as in others, so a median would jump."""
    times = [(1 / was, 1 / is_now) for was, is_now in zip(before, after)]

    def part(rounds):
        return 1 - sum(is_now for _, is_now in rounds) / sum(was for was, _ in rounds)

    dice = random.Random(1)
    parts = sorted(part(dice.choices(times, k=len(times))) for _ in range(4000))
    return part(times), parts[100], parts[-101]


def examine(crossway, kind, args, keep):
    """The predictions with and without the program's rate, this rate, and the achieved gains."""
    recording = keep / "".join(c if c.isalnum() else "-" for c in kind.name)
    known = recording.with_suffix(".json")
    if not known.exists():
        shutil.rmtree(recording, ignore_errors=True)
        known.write_text(json.dumps(tried(crossway, kind, cpus_of(args.placement), args.rounds, args.seconds, str(recording))))
    figures = json.loads(known.read_text())
    rate, rates = statistics.harmonic_mean(figures["before"]), figures["rates"]
    with tempfile.TemporaryDirectory(prefix="crossway-predict-") as out:
        gain, alone = (predicted(crossway, str(recording), kind.instead, known_rate, out) for known_rate in (rate, None))
    return gain, alone, rate, {way: saved(rates["tcp"], rates[way]) for way in ("unix", "run")}


def cpus_of(placement):
    """The CPU of the load and that of the servers."""
    allowed = sorted(os.sched_getaffinity(0))
    if placement == "apart" and len(allowed) < 2:
        sys.exit("there is one CPU, and programs can be kept apart only on two; try --placement together")
    return {"apart": allowed[:2], "together": allowed[:1] * 2, "free": None}[placement]


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
    if not predicted:
        raise RuntimeError(f"no prediction: {'; '.join(gain['remarks'])}")
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
    parser.add_argument("--placement", choices=["apart", "together", "free"], default="apart")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--crossway", default=f"{root}/target/release/crossway")
    parser.add_argument("--write", type=Path, help="replace the table in this document")
    parser.add_argument("--keep", type=Path, help="folder for recordings and rates; programs whose are there only get new predictions")
    args = parser.parse_args()
    crossway = [args.crossway]
    chosen = [p for p in PROGRAMS if not args.program or any(word in p.name for word in args.program)]
    if not chosen:
        sys.exit(f"no program has such a name; there are: {'; '.join(p.name for p in PROGRAMS)}")
    lines = [
        "| Program | Over TCP | UNIX socket (MPI: shared memory): predicted, rate known | From the recording alone | Achieved | Within 10 points | `crossway run`: predicted | Achieved |",
        "|---|---:|---:|---:|---:|---|---:|---:|",
    ]
    print("\n".join(lines), flush=True)
    hits, passing = 0, tempfile.TemporaryDirectory(prefix="crossway-predict-")
    keep = args.keep or Path(passing.name)
    keep.mkdir(parents=True, exist_ok=True)
    for kind in chosen:
        why = kind.missing()
        if why:
            print(f"SKIP {kind.name}: {why}; remedy: scripts/setup.sh predict", file=sys.stderr)
            continue
        try:
            line, hit = row(kind, *examine(crossway, kind, args, keep))
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


if __name__ == "__main__":
    main()
