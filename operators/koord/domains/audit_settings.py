"""Records of decisions: the section ``audit`` of the configuration."""

import re
from contextlib import suppress
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from koord.api.quantity import InvalidQuantityError, parse_quantity
from koord.domains.section import Section

STDOUT: Final = "stdout"
_LEAST_BYTES: Final = 64 * 1024
_MOST_BYTES: Final = 1 << 30
_FILE: Final = re.compile(r"/[^\0]*[^\0/]")


def parse_bytes(text: object) -> int:
    """Parse ``16Mi``; raise ValueError for anything else, and for what is out of bounds."""
    is_quantity = isinstance(text, str | int) and not isinstance(text, bool)
    with suppress(InvalidQuantityError):
        amount = parse_quantity(text).whole if is_quantity else 0  # type: ignore[arg-type]
        if _LEAST_BYTES <= amount <= _MOST_BYTES:
            return amount
    raise ValueError("is not an amount of memory between 64Ki and 1Gi, such as 16Mi")


def _parse_sink(text: object) -> str:
    """Accept nothing, ``stdout``, or an absolute path."""
    if isinstance(text, str) and (text in {"", STDOUT} or _FILE.fullmatch(text)):
        return text
    raise ValueError("is neither stdout nor the absolute path of a file")


class AuditSettings(Section):
    """Records of what was decided about each unit, for [history](audit.md).

    Nothing is recorded unless `feed` or `log` is set.
    """

    records: int = Field(default=8192, ge=16, le=1 << 20, strict=True)
    """How many records the leader keeps in memory; of more the oldest go."""
    bytes: Annotated[int, BeforeValidator(parse_bytes)] = 16 << 20
    """How much memory they may take, about."""
    log: Annotated[str, BeforeValidator(_parse_sink)] = ""
    """Where each record is written as a line of JSON: `stdout`, or a file, which is rotated by
    size."""
    feed: bool = Field(default=False, strict=True)
    """Whether the leader serves its records at /feed, to readers with the right to get it."""

    snapshot_on_error: bool = Field(default=False, strict=True)
    """Whether the leader keeps, for an hour, what it planned with when a unit was too expensive or
    made the planner fail: a [snapshot](replay.md) at /feed/snapshot, where `feed` is set."""

    @property
    def is_on(self) -> bool:
        return self.feed or bool(self.log)
