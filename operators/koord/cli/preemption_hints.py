"""What preemption has to do with the target of ``koord explain``: one or two sentences of advice.

A waiting unit may be preempting already, or would preempt; a victim makes room for somebody.
"""

import time
from collections.abc import Iterator

from koord.cli.cluster import Target, TargetKind
from koord.core.budgets import Budget
from koord.core.plan import Unit
from koord.core.pods import Pod
from koord.core.preemption.model import Exempt, Preemption
from koord.core.preemption.progress import find_preempting, write_victims
from koord.core.preemption.reasons import NobodyLower
from koord.core.preemption.search import Context, PreemptionOptions, plan_preemption
from koord.core.queue import find_pending
from koord.core.reasons import Reason
from koord.core.state import ClusterState
from koord.core.text import named, plural
from koord.kube.leader_report import PreemptionReport


def hint_at_preemption(
    state: ClusterState, target: Target, reason: Reason | None, said: PreemptionReport | None
) -> tuple[str, ...]:
    """Return what is worth saying; ``reason`` is why the target waits, ``said`` the settings."""
    pod = state.pod_by_key(target.key) if target.is_planned_alone else None
    if pod is not None and pod.preempted_by is not None:
        return (_tell_victim(pod),)
    if reason is None or not reason.is_capacity:
        return ()
    unit = find_unit(state, target)
    return () if unit is None else tuple(_tell_preemptor(state, unit, target, said))


def find_unit(state: ClusterState, target: Target) -> Unit | None:
    """Return the waiting unit of a pod or gang, if it is complete."""

    def is_meant(unit: Unit) -> bool:
        if target.is_planned_alone:
            return any(pod.key == target.key for pod in unit.pods)
        return any(demand.gang == target.key for demand in unit.demands)

    return next((unit for unit in find_pending(state) if is_meant(unit)), None)


def find_plan(
    state: ClusterState,
    unit: Unit,
    said: PreemptionReport | None,
    budgets: tuple[Budget, ...] = (),
    now: float = 0.0,
) -> Preemption | Reason:
    """Return the plan that the operators would make for a unit, or why they would make none.

    ``said`` are their settings; None if they are not known: then the defaults count.
    """
    preempting = find_preempting(state, unit.key)
    if preempting is not None:
        return preempting
    leaving = {pod.uid for one in state.nominations for pod in one.victims}
    context = Context(now, budgets, pending=lambda: find_pending(state))
    said = said or PreemptionReport()
    options = PreemptionOptions(said.min_runtime, said.max_per_day)
    return plan_preemption(state, unit, options, Exempt(terminating=leaving), context)


def _tell_victim(pod: Pod) -> str:
    by = pod.preempted_by
    name, plan_id = (by.preemptor, by.plan_id) if by is not None else ("", "")
    return (
        f"It is preempted by {name or 'a pod of higher priority'} (plan {plan_id}), which takes "
        "its place. A replacement starts when there is room for it again."
    )


def write_whether_on(said: PreemptionReport | None) -> str:
    """Say whether the operators do what is planned here."""
    if said is None:
        return "the operators do so unless preemption.enabled is off"
    return "the operators do so" if said.enabled else "they do not: preemption.enabled is false"


def _tell_preemptor(
    state: ClusterState, unit: Unit, target: Target, said: PreemptionReport | None
) -> Iterator[str]:
    nomination = state.nominations.find(unit.key)
    if nomination is not None:
        left = sorted(pod.title for pod in nomination.victims)
        nodes = named(sorted({one.node for one in nomination.assignments}))
        there = f": {named(left)} still terminating" if left else ""
        plan_id = nomination.plan_id
        yield f"It is preempting: room on {nodes} is kept for it (plan {plan_id}){there}."
        return
    found = find_plan(state, unit, said, now=time.time())
    if isinstance(found, Preemption):
        nodes = named(sorted({pod.node for pod in found.pods}))
        kind = "pg" if target.kind is TargetKind.POD_GROUP else target.kind.lower()
        yield (
            f"Preempting {write_victims(found.victims)} ({plural(len(found.pods), 'pod')}) frees "
            f"{nodes}; {write_whether_on(said)}. "
            f"koord preempt {kind}/{target.name} --dry-run shows the plan."
        )
    elif not isinstance(found, NobodyLower):
        yield f"Nobody is preempted for it: {found.text()}"
