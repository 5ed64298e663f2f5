"""A pytest plugin that writes the lines of verdicts.py, for suites that need pytest as their runner."""

import faulthandler
import os

OUT = os.open(os.environ["VERDICTS_FILE"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
WORST = ["pass", "skip", "expected", "surprise", "fail", "error"]


def read(name):
    path = os.environ.get(name)
    return set(open(path).read().split("\n")) if path else None


def say(*words):
    os.write(OUT, ("\t".join(words) + "\n").encode())


def pytest_collection_modifyitems(items):
    only, skip = read("VERDICTS_ONLY"), read("VERDICTS_SKIP") or set()
    items[:] = [i for i in items if i.nodeid not in skip and (only is None or i.nodeid in only)]


now = {}


def pytest_runtest_logstart(nodeid):
    now[nodeid] = "pass"
    say("start", nodeid)
    faulthandler.dump_traceback_later(60, exit=True)


def pytest_runtest_logreport(report):
    if hasattr(report, "wasxfail"):
        verdict = "expected" if report.skipped else "surprise"
    elif report.failed:
        verdict = "fail" if report.when == "call" else "error"
    else:
        verdict = "skip" if report.skipped else "pass"
    if WORST.index(verdict) > WORST.index(now[report.nodeid]):
        now[report.nodeid] = verdict


def pytest_runtest_logfinish(nodeid):
    faulthandler.cancel_dump_traceback_later()
    say(nodeid, now.pop(nodeid))


def pytest_sessionfinish():
    say("end")
