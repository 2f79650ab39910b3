"""When a job would start that does not exist yet, in a cluster as it was read.

Its pods are added to the reading, so that the planner makes units of them as of any others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from koord.answers.edits import Submit, Trial
from koord.answers.queue_view import QueueEntry
from koord.answers.reading import Reading, Target
from koord.answers.standing import NEVER_FITS
from koord.answers.waiting import find_waiting
from koord.core.model.pods import Pod


@dataclass(frozen=True, slots=True)
class EtaAnswer:
    """What would wait; ``elsewhere`` counts pods that others would place."""

    waiting: tuple[QueueEntry, ...]
    elsewhere: int = 0

    @property
    def never_fits(self) -> bool:
        return any(
            entry.standing is not None and entry.standing.state == NEVER_FITS
            for entry in self.waiting
        )


def ask_eta(
    reading: Reading,
    target: Target,
    job: Submit,
    is_over: Callable[[], bool],
) -> EtaAnswer:
    """Return what the units of a job wait for; changes the reading."""
    job.apply(Trial(reading.state))
    names = _names_of(job.pods)
    waiting = tuple(
        entry for entry in find_waiting(reading, target, is_over) if names.intersection(entry.names)
    )
    return EtaAnswer(waiting, sum(not pod.is_plannable for pod in job.pods))


def _names_of(pods: Sequence[Pod]) -> set[str]:
    return {pod.key if pod.gang is None else pod.gang.key for pod in pods}
