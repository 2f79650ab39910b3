"""Who leads the operators, since when, and what the leader says of itself."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from koord.answers.encoding import encode
from koord.core.model.text import format_age

DEFAULT_NAMESPACE: Final = "koord-system"


class LeaderStatement(Protocol):
    """What a leader says of itself with each renewal of its Lease."""

    @property
    def version(self) -> str: ...
    @property
    def not_ready(self) -> tuple[str, ...]: ...
    @property
    def refused(self) -> tuple[str, ...]: ...
    @property
    def ready(self) -> int | None: ...
    @property
    def blocked(self) -> int | None: ...
    @property
    def incomplete(self) -> int | None: ...
    @property
    def reasons(self) -> Mapping[str, int]: ...
    @property
    def open_namespaces(self) -> tuple[str, ...]: ...
    @property
    def open_count(self) -> int | None: ...
    @property
    def enforced(self) -> int: ...
    @property
    def reclaim_after(self) -> float | None: ...
    @property
    def feed(self) -> str: ...
    @property
    def last_error(self) -> str: ...
    @property
    def last_error_at(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Leader:
    """What one Lease says; ``holder`` is empty if nobody leads now."""

    lease: str
    holder: str
    since: str
    renewed: float | None
    """Seconds since the last renewal."""
    report: LeaderStatement | None
    term: int | None = None
    """How often the lead has changed hands."""

    @property
    def is_well(self) -> bool:
        """Whether somebody leads, has read everything, and may write what is to be written."""
        report = self.report
        return bool(self.holder) and not (report and (report.not_ready or report.refused))


NOBODY: Final = Leader("", "", "", None, None)
"""There is no Lease."""


def describe_absence(leader: Leader | None) -> Iterator[str]:
    """Yield a warning if nobody leads for certain."""
    if leader is None or leader.holder:
        return
    # Settings of the operators are known from their report only.
    here = "what follows is computed here, with default settings; koord status says more"
    if leader is NOBODY:
        yield f"no operators have run in namespace {DEFAULT_NAMESPACE}: {here}"
    else:
        ago = "" if leader.renewed is None else f" {format_age(leader.renewed)} ago"
        yield f"nobody leads, the operators stopped{ago}: {here}"


@encode.register
def _(leader: Leader) -> dict[str, Any]:
    report = leader.report
    return {
        "lease": leader.lease,
        "leader": leader.holder or None,
        "since": leader.since or None,
        "renewedSecondsAgo": None if leader.renewed is None else round(leader.renewed, 1),
        "isWell": leader.is_well,
        "version": report.version if report else None,
        "notReady": list(report.not_ready) if report else [],
        "refused": list(report.refused) if report else [],
        "ready": report.ready if report else None,
        "blocked": report.blocked if report else None,
        "incomplete": report.incomplete if report else None,
        "reasons": dict(report.reasons) if report else {},
        "openNamespaces": list(report.open_namespaces) if report else [],
        "openNamespaceCount": report.open_count if report else None,
        "enforcedNamespaceCount": report.enforced if report else None,
        "reclaimAfterSeconds": report.reclaim_after if report else None,
        "lastError": (report.last_error or None) if report else None,
        "lastErrorAt": (report.last_error_at or None) if report else None,
    }
