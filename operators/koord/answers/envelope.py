"""The envelope of an answer: which answer it is, as of when it holds, and what is missing in it.

The same for every answer, whoever asks: ``koord … -o answer`` prints it around the value that
``-o json`` prints alone. Knows no answer and no cluster.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypedDict

from koord.core.model.text import format_milliseconds

VERSION: Final = "v1alpha1"


class GapCause(StrEnum):
    """Why something is missing in an answer; there are no other causes."""

    NO_RIGHT = "NoRight"
    """The asker may not list it."""
    NOT_SERVED = "NotServed"
    """The API server does not have the kind."""
    STALE = "Stale"
    """It was read too long ago."""
    NO_FEED = "NoFeed"
    """The leader's records are not followed."""
    NOT_STORED = "NotStored"
    """Nobody kept it."""
    TOO_EXPENSIVE = "TooExpensive"
    """It was not computed to the end: that would take too long."""
    TOO_MANY = "TooMany"
    """There is more than an answer holds."""
    HIDDEN = "Hidden"
    """It was read, and is not the asker's to see."""
    NO_LEADER = "NoLeader"
    """Nobody leads: what only the operators know is not known."""


class AnswerSource(StrEnum):
    """From where an answer was made."""

    LIVE = "Live"
    """From a watch."""
    ONCE = "Once"
    """From lists, read for this answer."""
    STORED = "Stored"
    """From what was kept."""
    REPORTED = "Reported"
    """From what the operators wrote only."""


_SEEN: Final = {GapCause.HIDDEN: "shown"}


@dataclass(frozen=True, slots=True)
class AnswerGap:
    """What is missing, why, and what is therefore not known (a phrase; ``are_many``: a plural)."""

    missing: str
    because: GapCause
    unknown: str
    are_many: bool = False

    @property
    def then(self) -> str:
        verb = "are" if self.are_many else "is"
        return f"{self.unknown} {verb} not {_SEEN.get(self.because, 'known')}"


class AsOfDocument(TypedDict):
    """When an answer holds, and from where it comes."""

    at: str
    state: int | None
    instance: str | None
    source: AnswerSource
    lagSeconds: int
    leader: str | None
    term: int | None
    feed: None


class GapDocument(TypedDict):
    """What is missing in an answer, why, and what is therefore not known."""

    missing: str
    because: GapCause
    then: str


class EnvelopeDocument(TypedDict):
    """An answer with what is to be known about it."""

    answer: str
    version: str
    asOf: AsOfDocument
    gaps: list[GapDocument]
    value: Any


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """All of an envelope but the value. ``at`` is in seconds since the epoch.

    ``leader`` and ``term`` are those of the operators; None if that is not known. A process that
    answers again and again counts its states, which only ``instance`` can compare; ``lag`` is how
    many seconds old they are.
    """

    answer: str
    at: float
    source: AnswerSource = AnswerSource.ONCE
    leader: str | None = None
    term: int | None = None
    gaps: tuple[AnswerGap, ...] = ()
    state: int | None = None
    instance: str | None = None
    lag: int = 0

    def wrap(self, document: Any) -> EnvelopeDocument:
        """Return the envelope around a value, as JSON has it."""
        return {
            "answer": self.answer,
            "version": VERSION,
            "asOf": {
                "at": format_milliseconds(self.at),
                "state": self.state,
                "instance": self.instance,
                "source": self.source,
                "lagSeconds": self.lag,
                "leader": self.leader,
                "term": self.term,
                "feed": None,
            },
            "gaps": [
                {"missing": gap.missing, "because": gap.because, "then": gap.then}
                for gap in self.gaps
            ],
            "value": document,
        }
