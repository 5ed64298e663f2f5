"""The module with the repository's reference run, and one short measurement. Run by scripts/wheel-test.sh."""

import doctest
import importlib
import tempfile
import unittest
from pathlib import Path

import crossway

RECORDS = Path(__file__).resolve().parents[2] / "records"
REFERENCE = next(path.parent for path in sorted(RECORDS.glob("*/results.jsonl")))


class ModuleTest(unittest.TestCase):
    def test_examples_in_the_documentation_are_true(self):
        for name in ("crossway", "crossway._program", "crossway.advice", "crossway.runs"):
            result = doctest.testmod(importlib.import_module(name))
            self.assertEqual(result.failed, 0, name)

    def test_a_run_that_is_not_there_is_an_error_with_the_programs_words(self):
        with self.assertRaises(crossway.CrosswayError) as raised:
            crossway.load("no-such-run")
        self.assertEqual(raised.exception.code, 2)
        self.assertIn("no-such-run", str(raised.exception))

    def test_figures_and_page_are_the_programs(self):
        run = crossway.load(REFERENCE)
        figures = run.figures()
        medians = [span["p50"] for one in figures if one["mechanism"] == "pipe" for span in one["latency_ns"]]
        self.assertTrue(medians)
        self.assertTrue(all(0 < median["low"] <= median["high"] for median in medians))
        self.assertIn("<svg", run.chart("round-trip")._repr_svg_())
        shown = run._repr_html_()
        self.assertTrue(shown.startswith("<iframe"))
        self.assertGreater(len(shown), len(run.page()))

    def test_a_run_is_a_table(self):
        try:
            table = crossway.load(REFERENCE).table()
        except ImportError as error:
            self.skipTest(str(error))
        rows, columns = table.shape
        self.assertEqual(rows, sum(1 for _ in (REFERENCE / "results.jsonl").open()))
        self.assertGreater(columns, 50)

    def test_two_mechanisms_of_a_run_are_compared(self):
        run = crossway.load(REFERENCE)
        found = run.compare(run, a="mechanism=pipe", b="mechanism=uds-stream")
        self.assertTrue(found.rows)
        self.assertLessEqual({row["verdict"] for row in found}, {"faster", "slower", "same", "unclear"})
        self.assertIn("<td>", found._repr_html_())

    def test_advice_from_records(self):
        advice = crossway.advise(size=64, no_measure=True, records=str(RECORDS))
        self.assertIn(advice.mechanism, {one["mechanism"] for one in crossway.load(REFERENCE).figures()})
        self.assertIn("smc", advice.ruled_out)

    def test_a_short_measurement(self):
        with tempfile.TemporaryDirectory() as folder:
            how = dict(filter="basic/pipe/ping-pong/64/*", trials=1, measure_ms=5, warmup_ms=1)
            run = crossway.measure("quick", show=False, out=folder, **how)
            self.assertEqual(run.outcome["failed"], 0)
            self.assertEqual(run.outcome["ok"] + run.outcome["degraded"], 1)
            self.assertEqual([one["mechanism"] for one in run.figures()], ["pipe"])


if __name__ == "__main__":
    unittest.main()
