"""Runs: measuring, their records as tables, comparing."""

from __future__ import annotations

import html
import os
import tempfile
from pathlib import Path
from typing import Any, Iterator, Optional, Sequence, Union

from ._program import call, call_json, options

PathLike = Union[str, "os.PathLike[str]"]


class Chart(str):
    """A chart as SVG; a notebook draws it."""

    def _repr_svg_(self) -> str:
        return str(self)


class Run:
    """All trials of one measurement, in a folder of their own.

    Attributes:
        path: the folder, or a run's name, as the commands of ``crossway`` take it.
        outcome: the numbers of trials and goals with each result, if this process measured the run.
    """

    def __init__(self, path: PathLike, outcome: Optional[dict[str, Any]] = None) -> None:
        self.path = os.fspath(path)
        self.outcome = outcome

    def __repr__(self) -> str:
        return f"<Run {self.path}>"

    def figures(self) -> list[dict[str, Any]]:
        """Return the figures of each case over its trials, with their confidence intervals.

        The unit is in a figure's name: ``latency_ns`` is in nanoseconds, ``bytes_per_s`` in bytes per second.
        """
        return call_json(["report", self.path])["cases"]

    def export(self, file: PathLike) -> Path:
        """Write one row per trial to a file whose extension is ``.parquet`` or ``.csv``; return its path.

        ``crossway export --columns`` lists the columns with their units.
        """
        call(["export", self.path, "--out", os.fspath(file)])
        return Path(file)

    def table(self) -> Any:
        """Return one row per trial as a table: polars' if polars is installed, else pandas', else Arrow's.

        Raises:
            ImportError: none of polars, pandas with pyarrow, and pyarrow is installed.
        """
        with tempfile.TemporaryDirectory() as folder:
            file = self.export(Path(folder) / "run.parquet")
            return _read_parquet(file)

    def __dataframe__(self, **how: Any) -> Any:
        return self.table().__dataframe__(**how)

    def compare(self, other: Union[Run, PathLike], **how: Any) -> Comparison:
        """Compare with another run, case by case: is ``other`` faster or slower than this run?

        Args:
            how: options of ``crossway compare``, with underscores: ``same_within`` (percent), ``fail_on``
                (``"slower:5%"``), ``across_machines=True`` ...
        """
        path = other.path if isinstance(other, Run) else os.fspath(other)
        # Status 1: a figure exceeds the limit of fail_on, which is an answer.
        found = call_json(["compare", self.path, path, *options(how)], accept=(0, 1))
        return Comparison(found)

    def chart(self, name: str = "round-trip") -> Chart:
        """Return a chart of the report: ``"round-trip"``, ``"throughput"`` or ``"cpu"``."""
        return Chart(call(["report", self.path, "--chart", name]))

    def page(self) -> str:
        """Return the report as one HTML page, which loads nothing else; about 2 MB."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "report.html"
            call(["report", self.path, "--output", str(file)])
            return file.read_text(encoding="utf-8")

    def _repr_html_(self) -> str:
        # The page's style and scripts must not meet the notebook's.
        return (
            '<iframe sandbox="allow-scripts" style="width:100%;height:48em;border:0" srcdoc="'
            f'{html.escape(self.page(), quote=True)}"></iframe>'
        )


class Comparison:
    """Two runs compared, one row for each figure of each case.

    Attributes:
        rows: what ``crossway compare --json`` says about each figure: its ``case``, ``figure``, ``verdict`` (``"faster"``,
            ``"slower"``, ``"same"`` or ``"unclear"``), ``ratio`` and so on.
        document: all that it says, including the failures of ``fail_on``.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.rows: list[dict[str, Any]] = document["comparisons"]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        counts: dict[str, int] = {}
        for row in self.rows:
            counts[row["verdict"]] = counts.get(row["verdict"], 0) + 1
        return f"<Comparison: {', '.join(f'{n} {verdict}' for verdict, n in sorted(counts.items())) or 'nothing'}>"

    def _repr_html_(self) -> str:
        def cells(tag: str, words: Sequence[Any]) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(str(word))}</{tag}>" for word in words) + "</tr>"

        lines = [cells("th", ["case", "figure", "B to A", "verdict"])]
        for row in self.rows:
            ratio = "" if row["ratio"] is None else f"{row['ratio']:.2g}"
            lines.append(cells("td", [row["case"], row["figure"], ratio, row["verdict"]]))
        return f"<table>{''.join(lines)}</table>"


def load(run: PathLike = "latest") -> Run:
    """Return a run by its folder or name; ``"latest"`` is the last one below the folder ``out``.

    Raises:
        CrosswayError: there is no such run.
    """
    found = Run(run)
    call(["export", found.path, "--format", "csv", "--out", os.devnull])
    return found


def measure(plan: PathLike = "quick", *, show: bool = True, **how: Any) -> Run:
    """Measure what a plan selects, and return the run.

    Args:
        plan: a preset such as ``"quick"``, or a plan's file.
        show: whether progress appears on standard error.
        how: options of ``crossway measure``, with underscores: ``trials``, ``measure_ms`` (milliseconds), ``filter``,
            ``hosts``, ``name``, ``out`` (the folder in which the run's folder is created) ...

    A trial that failed does not raise: see ``outcome["failed"]``.

    Raises:
        CrosswayError: the plan cannot be used, or the measurement was interrupted.
    """
    outcome = call_json(["measure", os.fspath(plan), *options(how)], accept=(0, 1), show=show)
    return Run(outcome["dir"], outcome)


def _read_parquet(file: Path) -> Any:
    try:
        import polars

        return polars.read_parquet(file)
    except ImportError:
        pass
    try:
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(file)
    except ImportError:
        raise ImportError(
            "a table needs polars, or pyarrow with or without pandas: pip install 'crossway[polars]'"
        ) from None
    try:
        return table.to_pandas()
    except ImportError:
        return table
