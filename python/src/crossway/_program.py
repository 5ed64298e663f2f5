"""Finds the program and calls it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence


class CrosswayError(Exception):
    """The program could not do what was asked; the message is the program's, and names the next step.

    Attributes:
        code: the program's exit status: 2 if the request cannot be met, 130 if interrupted.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def _places() -> Iterator[Path]:
    if chosen := os.environ.get("CROSSWAY_PROGRAM"):
        yield Path(chosen)
        return
    yield Path(sysconfig.get_path("scripts")) / "crossway"
    for scheme in ("posix_user", "posix_prefix"):
        yield Path(sysconfig.get_path("scripts", scheme)) / "crossway"
    # `pip install --target DIR` puts programs beside modules.
    yield Path(__file__).parent.parent / "bin" / "crossway"
    if found := shutil.which("crossway"):
        yield Path(found)


def program() -> Path:
    """Return the path of the program: ``CROSSWAY_PROGRAM``, else the wheel's, else the one in ``PATH``.

    Raises:
        FileNotFoundError: there is none.
    """
    for place in _places():
        if place.is_file():
            return place
    raise FileNotFoundError(
        "the program crossway is not installed; reinstall the wheel, or set CROSSWAY_PROGRAM to its path"
    )


def version() -> str:
    """Return the program's version.

    >>> version().split(".")[0]
    '0'
    """
    return call(["--version"]).split()[1]


def call(args: Sequence[str], *, accept: Sequence[int] = (0,), show: bool = False) -> str:
    """Run the program and return what it prints.

    Args:
        accept: exit statuses that are answers, not errors.
        show: whether the program's progress appears on standard error.
    """
    command = [str(program()), *args]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=None if show else subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )
    if done.returncode in accept:
        return done.stdout
    said = (done.stderr or "").strip() or f"{' '.join(command)} ended with status {done.returncode}"
    raise CrosswayError(said.removeprefix("crossway: "), done.returncode)


def call_json(args: Sequence[str], **how: Any) -> Any:
    """Run the program with ``--json`` and return its answer."""
    return json.loads(call([*args, "--json"], **how))


def options(values: Mapping[str, Any]) -> list[str]:
    """Return options of the command line.

    Underscores become hyphens, lists are joined by commas, ``True`` is an option without a value, and ``None`` and
    ``False`` are left out.

    >>> options({"p99_us": 50, "require": ["pollable", "order"], "no_measure": True, "rate": None})
    ['--p99-us=50', '--require=pollable,order', '--no-measure']
    """
    words = []
    for name, value in values.items():
        option = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(option)
        elif isinstance(value, (list, tuple)):
            words.append(f"{option}={','.join(map(str, value))}")
        else:
            words.append(f"{option}={value}")
    return words
