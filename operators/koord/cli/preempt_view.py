"""Searches victims for a waiting pod or gang and prints the plan: what ``koord preempt`` does.

The search is that of the operators, on a copy of the cluster read with the user's rights.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator
from typing import Final

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from koord.answers.encoding import encode
from koord.answers.envelope import AnswerGap, GapCause
from koord.answers.gaps import head_of
from koord.answers.preemption import PreemptionAnswer, find_plan, find_unit, write_whether_on
from koord.answers.reading import (
    Reading,
    ReportedPreemption,
    Target,
    TargetKind,
    TargetNotFoundError,
    describe_missing,
)
from koord.cli.cluster import read_cluster, refuse_gaps
from koord.cli.common import ExitCode, Output, fail, warn
from koord.cli.connection import open_client
from koord.cli.explain_view import Question
from koord.cli.find_target import find_planned, follow_owners
from koord.cli.output import count_of, make_table, print_in
from koord.core.eviction.model import Cost, Preemption
from koord.core.eviction.preemption import WaitingForPreemption, name_of
from koord.core.eviction.search import PreemptionContext
from koord.core.model.budgets import Budget
from koord.core.model.plan import Unit
from koord.core.model.reasons import Reason
from koord.domains.placement import NODES
from koord.kube.client import Client
from koord.kube.errors import Forbidden, KubeError
from koord.kube.evictor import list_budgets

_BUDGETS_UNKNOWN: Final = AnswerGap(
    "poddisruptionbudgets.policy", GapCause.NO_RIGHT, "which pods budgets protect"
)
_NOT_WAITING = "it does not wait for a place, or is not complete; see koord explain"


def show(question: Question, output: Output, *, as_exit_code: bool) -> None:
    now = time.time()
    try:
        target, reading, budgets = asyncio.run(_read(question, now))
    except KubeError as error:
        fail(str(error), ExitCode.UNREADABLE)
    except TargetNotFoundError as error:
        fail(str(error), ExitCode.USAGE)
    refuse_gaps(reading, NODES)
    unit = find_unit(reading.state, target)
    if unit is None:
        _tell_not_waiting(reading, target, output)
        return
    settings = reading.preemption
    more = () if budgets is not None else (_BUDGETS_UNKNOWN,)
    if more:
        warn("you may not list PodDisruptionBudgets: the operators may choose other victims")
    elif settings is None:
        warn("the operators' settings are not known: minRuntime and maxPerDay are taken for 0")
    outcome = find_plan(reading.state, unit, settings, PreemptionContext(now, budgets or ()))
    print_in(
        output,
        head_of("Preemption", reading, target, more),
        document=lambda: encode(PreemptionAnswer(unit, outcome, settings)),
        names=lambda: _names_of(outcome),
        text=lambda: make_parts(unit, outcome, settings),
    )
    if as_exit_code and not isinstance(outcome, Preemption):
        raise SystemExit(ExitCode.NOT_WELL)


def _tell_not_waiting(reading: Reading, target: Target, output: Output) -> None:
    state = reading.state
    if target.kind is TargetKind.POD and state.pod_by_key(target.key) is None:
        keys = (pod.key for pod in state.pods.values())
        fail(describe_missing(reading, target, keys), ExitCode.USAGE)
    if target.kind is TargetKind.POD_GROUP and target.key not in state.gangs:
        fail(describe_missing(reading, target, state.gangs.keys()), ExitCode.USAGE)
    document = {
        "preemptor": target.title,
        "preempts": False,
        "reason": "NotWaiting",
        "message": _NOT_WAITING,
        "advice": [],
    }
    print_in(
        output,
        head_of("Preemption", reading, target),
        document=lambda: document,
        names=tuple,
        text=lambda: (Text(f"{target.title} preempts nobody: {_NOT_WAITING}."),),
    )


async def _read(
    question: Question, now: float
) -> tuple[Target, Reading, tuple[Budget, ...] | None]:
    async with open_client(question.kubeconfig, question.context) as (client, access):
        typed = Target(question.kind, question.namespace or access.namespace, question.name)
        target = await find_planned(client, typed, now)
        reading = await read_cluster(client, target)
        target = follow_owners(typed, target, reading.state)
        if reading.extent_of(NODES.name) is not None:
            return target, reading, ()  # nothing is searched
        return target, reading, await _read_budgets(client)


async def _read_budgets(client: Client) -> tuple[Budget, ...] | None:
    """Return the budgets; None if they must not be read."""
    try:
        return await list_budgets(client)
    except Forbidden:
        return None


def _names_of(preemption: Preemption | Reason) -> Iterable[str]:
    pods = preemption.pods if isinstance(preemption, Preemption) else ()
    return (f"pod/{pod.name}" for pod in pods)


def make_parts(
    unit: Unit, reason: Preemption | Reason, settings: ReportedPreemption | None
) -> Iterator[RenderableType]:
    name = name_of(unit)
    if not isinstance(reason, Preemption):
        does = "is preempting" if isinstance(reason, WaitingForPreemption) else "preempts nobody"
        yield Text.assemble((name, "bold"), f" (priority {unit.priority}) {does}.")
        yield Padding(Text(reason.text()), (0, 0, 0, 2))
        for sentence in reason.advice():
            yield Padding(Text(sentence), (0, 0, 0, 2))
        return
    nodes = {assignment.node for assignment in reason.placement.assignments}
    yield Text.assemble(
        (name, "bold"),
        f" (priority {unit.priority}) would preempt {count_of(len(reason.pods), 'pod')} "
        f"and start on {count_of(len(nodes), 'node')} (plan {reason.placement.plan_id}); "
        f"{write_whether_on(settings, reason.pods)}.",
    )
    table = make_table("VICTIM", "KIND", "PRIORITY", "PODS", "NODES", right=("PRIORITY", "PODS"))
    for victim in reason.victims:
        there = sorted({pod.node for pod in victim.pods})
        shown = ", ".join(there[:4]) + (f" and {len(there) - 4} more" if len(there) > 4 else "")
        table.add_row(
            victim.name, str(victim.kind), str(victim.priority), str(len(victim.pods)), shown
        )
    yield table
    yield Text(_write_cost(reason.cost))
    proof = reason.certificate
    yield Text(
        ("No victim can be spared" if proof.is_minimal else "Some victims may be spared")
        + ("; no other victims cost less." if proof.is_cheapest else "; others may cost less.")
    )
    for other in reason.alternatives:
        names = ", ".join(victim.name for victim in other.victims[:4])
        yield Text(f"Also considered: {names}. {_write_cost(other.cost)}")


def _write_cost(cost: Cost) -> str:
    gpu_hours = cost.work / 360_000
    doubts = f"{count_of(cost.doubts, 'pod')} that may hang, " if cost.doubts else ""
    return (
        f"Cost: {cost.violations} over disruption budgets, {count_of(cost.gangs, 'whole gang')}, "
        f"highest priority {cost.priority}, {doubts}{gpu_hours:.1f} GPU hours of work, "
        f"{count_of(cost.pods, 'pod')}."
    )
