"""Conditions and their reasons, as the reference has them: what they mean, and what helps.

What a reason means stands beside its class; ``conditions.toml`` has their order, on what they are,
and what belongs to no reason. Knows no page and no command.
"""

import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from koord.answers import explain, reports, waiting  # noqa: F401 - these import every reason
from koord.core.model.reasons import REASONS


class ConditionEntry(NamedTuple):
    """A condition, or one of its reasons; ``conditions`` is empty where it is none."""

    on: str
    conditions: tuple[str, ...]
    reason: str
    means: str
    helps: str


@cache
def list_conditions() -> Sequence[ConditionEntry]:
    """Return all entries, in the order of the page. Links in texts are relative to ``docs``."""
    text = files(__package__).joinpath("conditions.toml").read_text(encoding="utf-8")
    return [_complete(**entry) for entry in tomllib.loads(text)["entry"]]


def _complete(
    on: str, conditions: Sequence[str] = (), reason: str = "", means: str = "", helps: str = ""
) -> ConditionEntry:
    if not means:
        means, helps = REASONS[reason].describe(), REASONS[reason].way_out
    return ConditionEntry(on, tuple(conditions), reason, means, helps)
