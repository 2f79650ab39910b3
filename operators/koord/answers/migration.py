"""What a PodMigrationJob waits for, and what can be done about it: for ``koord explain``.

Told from what the job says, and by the rules by which the operators decide about its pod.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from koord.core.eviction.mobility import Obstacle
from koord.core.eviction.reasons import Protection, tell_protection
from koord.core.migration.model import JobReason, MigrationJob
from koord.core.migration.stage import MoveStage, count_places, find_stage
from koord.core.model.pods import Pod
from koord.core.model.text import format_age

_TEXTS: Final = {
    MoveStage.MOVED: "{pod} was moved from {node} to {target}: {new} has replaced it.",
    MoveStage.FAILED: "It has failed ({reason}): {message}.",
    MoveStage.NOT_CARRIED_OUT: "Nobody carries it out: {message}.",
    MoveStage.PAUSED: "It is paused (spec.paused); {pod} stays on {node}.",
    MoveStage.ARBITRATION: "It waits for its turn: {message}.",
    MoveStage.PLACE: "A place for {pod} is looked for; it runs on {node} until there is one.",
    MoveStage.GROUP: "{placed} of the {size} jobs of its group have places; when all have, all "
    "pods are evicted together.",
    MoveStage.EVICTION: "{pod} is about to be evicted from {node}; its place on {target} is kept.",
    MoveStage.REPLACEMENT: "{pod} has gone from {node}; its place on {target} is kept for what "
    "its controller creates.",
    MoveStage.READINESS: "{new} has taken the place on {target}, and is not ready yet.",
}
_ADVICE: Final = {
    MoveStage.ARBITRATION: "the limits are settings of `migration`; see docs/pod-migration.md",
    MoveStage.PLACE: "see what the reservation waits for: koord explain reservation/{reservation}",
    MoveStage.EVICTION: "PodDisruptionBudgets and the rates of evictions may delay this",
    MoveStage.REPLACEMENT: "look whether its controller creates pods",
    MoveStage.READINESS: "see koord explain pod/{new}",
}
_OF_REASONS: Final = {
    JobReason.UNSCHEDULABLE: "room on other nodes; koord drain-plan {node} shows what fits where",
    JobReason.FORBIDDEN: "the rules are listed in docs/pod-migration.md",
    JobReason.TIMEOUT: "a longer spec.ttl, if it would have come to an end",
    JobReason.RESERVATION_EXPIRED: "a longer spec.ttl, if it would have come to an end",
}


@dataclass(frozen=True, slots=True)
class MoveAnswer:
    """How far a job is. ``obstacle`` is why it would be refused; empty if nothing is known."""

    job: str
    phase: str
    stage: MoveStage
    message: str
    pod: str
    node: str
    target: str
    replacement: str
    reservation: str
    group: tuple[str, ...] = ()
    obstacle: str = ""
    left: str = ""
    """How much time it has left; empty if that does not matter."""
    advice: tuple[str, ...] = ()


def explain_job(
    job: MigrationJob,
    group: Collection[MigrationJob],
    pod: Pod | None,
    obstacle: Obstacle | None,
    now: float,
) -> MoveAnswer:
    """Return what a job waits for; ``group`` has all jobs that move together with it."""
    stage, status = find_stage(job), job.status
    new = "" if status.pod is None else status.pod.key
    node = job.origin.node or ("" if pod is None else pod.node)
    words = {
        "pod": job.pod.key,
        "node": node or "its node",
        "target": status.node or "another node",
        "new": new or "another pod",
        "reason": status.reason or "Invalid",
        "message": (status.message or job.problem or "the operators have not said why").rstrip("."),
        "reservation": job.reservation_name,
        "placed": count_places(group),
        "size": job.group_size,
    }
    advice = _OF_REASONS.get(JobReason(status.reason)) if status.reason in {*JobReason} else None
    advice = _ADVICE.get(stage) or (advice if stage is MoveStage.FAILED else None)
    is_open = stage not in {MoveStage.MOVED, MoveStage.FAILED}
    return MoveAnswer(
        job.name,
        str(status.phase),
        stage,
        _TEXTS[stage].format(**words),
        job.pod.key,
        node,
        status.node,
        new,
        job.reservation_name,
        tuple(sorted(other.name for other in group)) if job.group else (),
        _tell(obstacle) if stage in {MoveStage.ARBITRATION, MoveStage.NOT_CARRIED_OUT} else "",
        format_age(max(job.created + job.ttl - now, 0.0)) if job.ttl and is_open else "",
        () if advice is None else (advice.format(**words),),
    )


def _tell(obstacle: Obstacle | None) -> str:
    if obstacle is None:
        return ""
    if isinstance(obstacle, Protection):
        return f"it is one of the pods {tell_protection(obstacle)}"
    return str(obstacle)
