"""Recommendations."""

from __future__ import annotations

from typing import Any, Optional

from ._program import call_json, options


class Advice:
    """A recommendation, and what it is based on.

    Attributes:
        document: all that ``crossway advise --json`` says.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    @property
    def mechanism(self) -> Optional[str]:
        """Id of the recommended mechanism; ``None`` if none can be recommended: see :attr:`abstained`."""
        return self.document["mechanism"]

    @property
    def abstained(self) -> Optional[str]:
        """Why no mechanism is recommended; ``None`` if one is."""
        return self.document["abstained"]

    @property
    def runner_up(self) -> Optional[str]:
        """The next best candidate."""
        return self.document["runner_up"]

    @property
    def ruled_out(self) -> dict[str, str]:
        """Candidates that were ruled out, and why."""
        return {one["candidate"]: one["why"] for one in self.document["ruled_out"]}

    def __repr__(self) -> str:
        question = self.document["question"]
        if self.mechanism is None:
            return f"<Advice: none for {question}: {self.abstained}>"
        return f"<Advice: {self.document['choice']} for {question}>"


def advise(question: Optional[str] = None, **criteria: Any) -> Advice:
    """Recommend a mechanism, as ``crossway advise`` does; measures what earlier records do not answer.

    Args:
        question: a question's file, or the name of a ready-made one such as ``"camera"``.
        criteria: options of ``crossway advise``, with underscores: ``size`` (bytes, or text such as ``"4KiB"``), ``rate``
            (messages per second), ``p99_us`` (microseconds), ``require`` (a list of properties), ``records`` (the folder of
            earlier runs), ``no_measure=True`` ...

    Raises:
        CrosswayError: the question cannot be used.

    >>> advise(size=64, p99_us=50, no_measure=True).mechanism    # doctest: +SKIP
    'sysv-shm'
    """
    named = [] if question is None else [question]
    # Status 1: none can be recommended, which is an answer.
    return Advice(call_json(["advise", *named, *options(criteria)], accept=(0, 1)))
