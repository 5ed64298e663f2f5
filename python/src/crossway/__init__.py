"""Measure the ways two processes on Linux can talk, and choose one.

The module calls the program ``crossway`` and reads its JSON and Parquet; it computes no figure itself.

>>> import crossway
>>> run = crossway.load("latest")            # doctest: +SKIP
>>> run.table()                              # doctest: +SKIP
>>> crossway.advise(size=64).mechanism       # doctest: +SKIP
'sysv-shm'
"""

from ._program import CrosswayError, program, version
from .advice import Advice, advise
from .runs import Chart, Comparison, Run, load, measure

__all__ = [
    "Advice",
    "Chart",
    "Comparison",
    "CrosswayError",
    "Run",
    "advise",
    "load",
    "measure",
    "program",
    "version",
]
