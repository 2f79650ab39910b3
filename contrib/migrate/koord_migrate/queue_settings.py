"""Whose turn it is, as others say it: as settings of our queues."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from koord.api.quantity import parse_duration_seconds

KOORD_QUEUE_LABEL: Final = "koord-queue/queue-policy"
_POLICIES: Final[Mapping[str, str]] = {
    # Kueue
    "StrictFIFO": "Strict",
    "BestEffortFIFO": "BestEffort",
    # Volcano
    "fifo": "Strict",
    "traverse": "BestEffort",
    # Koord-Queue
    "Priority": "BestEffort",
    "Block": "Strict",
}
_STOPS: Final = ("Hold", "HoldAndDrain")
BY_HAND: Final = (
    "Strict for some priorities and BestEffort for others is not known here: Backfill lets jobs "
    "pass that delay nobody"
)
"""About Intelligent of Koord-Queue."""


def policy_of(text: Any) -> str:
    """Return our policy for a strategy of others; a ``ValueError`` if nobody has it."""
    if str(text) not in _POLICIES:
        raise ValueError(f"{text!r} is no strategy with an equivalent")
    return _POLICIES[str(text)]


def stop_of(text: Any) -> str:
    """Return how a queue is stopped; empty: not at all."""
    if str(text) not in {*_STOPS, "None"}:
        raise ValueError(f"{text!r} is no stopPolicy")
    return str(text) if text in _STOPS else ""


def protect(settings: dict[str, str], waits: Iterable[str]) -> None:
    """Reserve room for the first of a queue after the shortest wait that its jobs bear."""
    times = [(seconds, text) for text in waits if (seconds := parse_duration_seconds(text))]
    if not times:
        return
    settings["protectAfter"] = min(times)[1]
    if settings.get("policy") == "BestEffort":
        settings["policy"] = "Backfill"


def read_wait(text: Any) -> str:
    """Return a duration, as it is written; a ``ValueError`` if it is none."""
    if not parse_duration_seconds(str(text)):
        raise ValueError(f"{text!r} is no duration")
    return str(text)
