"""Runs the tests of one unittest module and appends one line per event to a file: `start ID`, then `ID VERDICT`.

    verdicts.py FILE NAME [--only LIST] [--skip LIST] [--limit SECONDS]

NAME is what unittest's loader takes: a module or a package. LIST is a file with one test ID per line. Verdicts are pass,
fail, error, skip, expected and surprise; a test with subtests gets the worst of theirs. A test that takes longer than the limit
ends the process, so that the caller sees a `start` without a verdict and can go on with the tests after it.
"""

import argparse
import faulthandler
import os
import sys
import unittest

WORST = ["pass", "skip", "expected", "surprise", "fail", "error"]


class Recorder(unittest.TestResult):
    def __init__(self, out, limit):
        super().__init__()
        self.out, self.limit, self.now = out, limit, None

    def say(self, *words):
        os.write(self.out, ("\t".join(words) + "\n").encode())

    def startTest(self, test):
        super().startTest(test)
        self.now = "pass"
        self.say("start", test.id())
        faulthandler.dump_traceback_later(self.limit, exit=True)

    def stopTest(self, test):
        super().stopTest(test)
        faulthandler.cancel_dump_traceback_later()
        self.say(test.id(), self.now)
        self.now = None

    def note(self, test, verdict, error=None):
        if self.now is None:
            # A fixture of a class or a module, which has no start.
            self.say(test.id(), verdict)
        elif WORST.index(verdict) > WORST.index(self.now):
            self.now = verdict
        if error is not None:
            print(f"=== {verdict}: {test.id()}\n{self._exc_info_to_string(error, test)}", file=sys.stderr, flush=True)

    def addError(self, test, err):
        self.note(test, "error", err)

    def addFailure(self, test, err):
        self.note(test, "fail", err)

    def addSkip(self, test, reason):
        self.note(test, "skip")

    def addExpectedFailure(self, test, err):
        self.note(test, "expected")

    def addUnexpectedSuccess(self, test):
        self.note(test, "surprise")

    def addSubTest(self, test, subtest, err):
        if err is not None:
            failed = issubclass(err[0], test.failureException)
            self.note(test, "fail" if failed else "error", err)


def flat(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flat(test)
        else:
            yield test


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("name")
    parser.add_argument("--only")
    parser.add_argument("--skip")
    parser.add_argument("--limit", type=float, default=60)
    args = parser.parse_args()
    read = lambda path: set(open(path).read().split("\n")) if path else None
    only, skip = read(args.only), read(args.skip) or set()
    out = os.open(args.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    tests = list(flat(unittest.defaultTestLoader.loadTestsFromNames([args.name])))
    chosen = [t for t in tests if t.id() not in skip and (only is None or t.id() in only)]
    unittest.TestSuite(chosen).run(Recorder(out, args.limit))
    os.write(out, b"end\n")
    # Threads that a failed test left behind must not keep the process.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
