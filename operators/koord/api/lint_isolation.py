"""Isolates the documents of ``koord lint`` from each other.

A rule that fails for one document says so of that document: the problems of all others are told.
"""

from collections.abc import Callable, Iterable
from typing import Final

from typing_extensions import ParamSpec

from koord.api.parse import Problem
from koord.isolation import Isolation

Finding = tuple[int, Problem]
"""The place of a document, and a problem of it."""
P = ParamSpec("P")
_ISOLATED: Final = Isolation("lint")


def find_of(
    at: int, find: Callable[P, Iterable[Finding]], *args: P.args, **more: P.kwargs
) -> list[Finding]:
    """Return what a rule finds, called for the document at a place."""
    findings = _ISOLATED.call(at, lambda: list(find(*args, **more)))
    return [(at, _make_failure(at))] if findings is None else findings


def _make_failure(at: int) -> Problem:
    error = _ISOLATED.error_of(at) or "an error"
    return Problem("", "", f"is not checked as a whole: koord lint fails with {error}, a defect")
