"""The phases of a PodGroup, as a table.

A step takes the first row that applies; settling repeats steps until the phase does not change. The
phases and their names are Koordinator's; conditions on ``compat`` mark the differences: a failed or
finished group starts over when it gets new pods, it fails only when fewer than its minimum can ever
run, and it is not Scheduling before a member is placed. ``docs/gang-lifecycle.md`` has this table.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from koord.core.gang.tally import Tally
from koord.core.model.gangs import GangPhase


@dataclass(frozen=True, slots=True)
class PhaseInput:
    """The minimum of a gang and the counts of its members; ``done`` ones have succeeded.

    The last three say whether members that are done, placed or done, and present or done make the
    sub-groups complete that the gang needs.
    """

    min_member: int
    tally: Tally
    done: int
    compat: bool = False
    is_whole_done: bool = True
    is_whole_placed: bool = True
    is_whole_present: bool = True

    @property
    def at_work(self) -> int:
        """Members that are placed or done; with ``compat`` all that have a node."""
        return self.tally.bound if self.compat else self.tally.bound_alive + self.done

    @property
    def has_quorum(self) -> bool:
        """Enough members exist to start, or enough have ended to tell that the group failed."""
        tally = self.tally
        count = tally.total if self.compat else len(tally.present) + self.done
        return self.min_member > 0 and (count >= self.min_member or self.has_failed)

    @property
    def has_no_pods(self) -> bool:
        return not self.tally.total

    @property
    def has_finished(self) -> bool:
        return self.done >= self.min_member and self.is_whole_done

    @property
    def has_failed(self) -> bool:
        """A member failed, none runs, the minimum has run, and too few are left to run again."""
        tally = self.tally
        if tally.running and not self.compat:
            return False
        ended = tally.failed + tally.running + self.done
        can_run = 0 if self.compat else tally.alive + self.done
        is_short = self.min_member > can_run or not self.is_whole_present
        return tally.failed > 0 and ended >= self.min_member and is_short

    @property
    def runs(self) -> bool:
        tally = self.tally
        return self.is_scheduled and tally.running + self.done >= self.min_member

    @property
    def is_scheduled(self) -> bool:
        return self.at_work >= self.min_member and self.is_whole_placed

    @property
    def has_no_place(self) -> bool:
        return not self.compat and not self.at_work and not self.tally.planned


@dataclass(frozen=True, slots=True)
class PhaseRule:
    """From any phase of ``origins`` to ``target`` if ``holds``; ``when`` says so in words."""

    origins: frozenset[GangPhase]
    when: str
    holds: Callable[[PhaseInput], bool]
    target: GangPhase


_SETTLED_SECONDS: Final = 48 * 3600.0

_UNSET: Final = frozenset({GangPhase.UNSET, GangPhase.UNKNOWN})
_PENDING: Final = frozenset({GangPhase.PENDING})
_FINISHED: Final = frozenset({GangPhase.FINISHED})
_FAILED: Final = frozenset({GangPhase.FAILED})
_ENDED: Final = _FINISHED | _FAILED
_OTHERS: Final = frozenset(GangPhase) - _UNSET - _PENDING - _ENDED


def _always(_: PhaseInput) -> bool:
    return True


def _stays_finished(counts: PhaseInput) -> bool:
    return counts.compat or not counts.tally.alive or counts.has_finished


def _stays_failed(counts: PhaseInput) -> bool:
    return counts.compat or not counts.tally.alive or counts.has_failed


TABLE: Final = (
    PhaseRule(_UNSET, "always", _always, GangPhase.PENDING),
    PhaseRule(_PENDING, "quorum, or failed", lambda c: c.has_quorum, GangPhase.PRE_SCHEDULING),
    PhaseRule(_PENDING, "otherwise", _always, GangPhase.PENDING),
    PhaseRule(_FINISHED, "no live pod, or min succeeded", _stays_finished, GangPhase.FINISHED),
    PhaseRule(_FAILED, "no live pod, or failed", _stays_failed, GangPhase.FAILED),
    PhaseRule(_ENDED, "otherwise: pods came back", _always, GangPhase.PENDING),
    PhaseRule(_OTHERS, "no pods", lambda c: c.has_no_pods, GangPhase.PENDING),
    PhaseRule(_OTHERS, "min succeeded", lambda c: c.has_finished, GangPhase.FINISHED),
    PhaseRule(_OTHERS, "failed", lambda c: c.has_failed, GangPhase.FAILED),
    PhaseRule(_OTHERS, "min have a node, run or succeeded", lambda c: c.runs, GangPhase.RUNNING),
    PhaseRule(
        _OTHERS, "min have a node or succeeded", lambda c: c.is_scheduled, GangPhase.SCHEDULED
    ),
    PhaseRule(
        _OTHERS,
        "no member has a place, quorum",
        lambda c: c.has_no_place and c.has_quorum,
        GangPhase.PRE_SCHEDULING,
    ),
    PhaseRule(
        _OTHERS, "no member has a place, no quorum", lambda c: c.has_no_place, GangPhase.PENDING
    ),
    PhaseRule(_OTHERS, "otherwise", _always, GangPhase.SCHEDULING),
)


def step_phase(phase: GangPhase, counts: PhaseInput) -> GangPhase:
    return next(row.target for row in TABLE if phase in row.origins and row.holds(counts))


def settle_phase(phase: GangPhase, counts: PhaseInput) -> tuple[GangPhase, ...]:
    """Step until the phase does not change; return every phase on the way, the last one last."""
    path = [step_phase(phase, counts)]
    while (following := step_phase(path[-1], counts)) != path[-1]:
        path.append(following)
    return tuple(path)


def is_settled(min_member: int, status: tuple[int, int], waited: float) -> bool:
    """Whether Koordinator ignores a PodGroup from now on: it takes its pods for long deleted.

    ``status`` holds the members that are scheduled and those that run as the status has them;
    ``waited`` are the seconds from the creation of the PodGroup to its ``scheduleStartTime``.
    """
    return status == (min_member, 0) and waited > _SETTLED_SECONDS


def make_occupied_by(namespace: str, owners: Iterable[str]) -> str:
    """Return the owners of the pods of a group: ``namespace/owner``, sorted, joined with ``,``."""
    return ",".join(sorted(f"{namespace}/{owner}" for owner in owners))
