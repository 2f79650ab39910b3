"""Conditions and their reasons, as the reference has them: what they mean, and what helps.

What a reason means stands beside its class; ``conditions.toml`` has the order of all, on what they
are, and what belongs to no class. Knows no page and no command.
"""

import inspect
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import NamedTuple

from koord import core
from koord.answers import explain, waiting  # noqa: F401 - with reasons of their own
from koord.core.model.reasons import REASONS, Reason


class ConditionEntry(NamedTuple):
    """A type of conditions, or a reason of what stands in ``where`` behind the kind of object."""

    name: str
    is_reason: bool
    where: str
    means: str
    helps: str


@cache
def list_conditions() -> Sequence[ConditionEntry]:
    """Return all entries, in the order of the page. Links in texts are relative to ``docs``."""
    _import_reasons()
    text = files(__package__).joinpath("conditions.toml").read_text(encoding="utf-8")
    return [entry for group in tomllib.loads(text)["group"] for entry in _list_group(**group)]


def _import_reasons() -> None:
    """Import the reasons of every domain, which register themselves."""
    for domain in iter_modules(core.__path__, f"{core.__name__}."):
        if find_spec(f"{domain.name}.reasons"):
            import_module(f"{domain.name}.reasons")


def _list_group(
    where: str,
    reasons: Sequence[str] = (),
    words: Mapping[str, Sequence[str]] = {},
    means: str = "",
    helps: str = "",
) -> Iterator[ConditionEntry]:
    if means:
        kind, _, type_ = where.partition(": ")
        yield ConditionEntry(type_, False, kind, means, helps)
    for code in reasons:
        yield ConditionEntry(code, True, where, _describe(REASONS[code]), REASONS[code].way_out)
    for word, (meaning, *way_out) in words.items():
        yield ConditionEntry(word, True, where, meaning, "".join(way_out))


def _describe(reason: type[Reason]) -> str:
    """Return when a reason occurs, as a part of a sentence."""
    if reason.meaning:
        return reason.meaning
    line = inspect.cleandoc(reason.__doc__ or "").partition("\n")[0]
    line = line.removesuffix(".").replace("``", "`")
    is_name = any(char.isupper() for char in line.partition(" ")[0][1:])
    return line if is_name else f"{line[:1].lower()}{line[1:]}"
