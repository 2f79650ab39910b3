"""The annotations of pods and PodGroups about their run: how long, of which kind, for whom.

Never raises: an invalid value is reported, and counts as if it were not there.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from koord.api.keys import operators
from koord.api.quantity import parse_duration_seconds

LONGEST_SECONDS: Final = 10 * 365 * 24 * 3600
"""Limit of run times; less than what `activeDeadlineSeconds` of a pod may be."""
BACKFILL: Final = ("Allowed", "Never", "Evictable")
MAX_TEXT: Final = 253

Report: TypeAlias = Callable[[str, str, str, str], None]
"""Takes the key, its value, what is wrong, and what is in force instead."""
_A_DURATION: Final = (
    "must be a duration such as 90s, 15m or 1h30m, more than 0s and at most ten years"
)


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What is valid of them; times in seconds."""

    max_run_time: int | None = None
    expected_run_time: int | None = None
    run_class: str = ""
    user: str = ""
    backfill: str = BACKFILL[0]


NO_SETTINGS: Final = RunSettings()
ANNOTATIONS: Final = (
    operators.MAX_RUN_TIME,
    operators.EXPECTED_RUN_TIME,
    operators.RUN_CLASS,
    operators.USER,
    operators.BACKFILL,
)


def parse_run_settings(annotations: Mapping[str, str], report: Report) -> RunSettings:
    """Return what an object says, after reporting what is invalid of it."""
    if annotations.keys().isdisjoint(ANNOTATIONS):
        return NO_SETTINGS
    return RunSettings(
        _read_duration(annotations, operators.MAX_RUN_TIME, report),
        _read_duration(annotations, operators.EXPECTED_RUN_TIME, report),
        _read_text(annotations, operators.RUN_CLASS, report),
        _read_text(annotations, operators.USER, report),
        _read_choice(annotations, report),
    )


def find_bad_run_settings(annotations: Mapping[str, str]) -> Iterator[tuple[str, str, str, str]]:
    """Yield what ``parse_run_settings`` reports."""
    bad: list[tuple[str, str, str, str]] = []
    parse_run_settings(annotations, lambda *reported: bad.append(reported))
    yield from bad


def _read_duration(annotations: Mapping[str, str], key: str, report: Report) -> int | None:
    text = annotations.get(key, "")
    if not text:
        return None
    seconds = parse_duration_seconds(text)
    if seconds is not None and 0 < seconds <= LONGEST_SECONDS:
        return seconds
    report(key, text, _A_DURATION, "none")
    return None


def _read_text(annotations: Mapping[str, str], key: str, report: Report) -> str:
    text = annotations.get(key, "")
    if len(text) <= MAX_TEXT:
        return text
    report(key, text, f"is longer than {MAX_TEXT} characters", "none")
    return ""


def _read_choice(annotations: Mapping[str, str], report: Report) -> str:
    text = annotations.get(operators.BACKFILL, "")
    if not text or text in BACKFILL:
        return text or BACKFILL[0]
    report(operators.BACKFILL, text, f"must be {' or '.join(BACKFILL)}", BACKFILL[0])
    return BACKFILL[0]
