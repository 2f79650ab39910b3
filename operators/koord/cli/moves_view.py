"""Reads the cluster and prints moves: what ``koord defrag`` and ``koord drain-plan`` do."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from koord.answers.encoding import encode
from koord.answers.envelope import AnswerHead
from koord.answers.gaps import head_of
from koord.answers.moves import DefragAnswer, MoveQuestion, ask_drain, ask_moves
from koord.answers.preemption import find_unit
from koord.answers.reading import Reading, Target, TargetKind, TargetNotFoundError
from koord.cli.cluster import read_cluster, refuse_gaps
from koord.cli.common import ExitCode, Output, fail, warn
from koord.cli.connection import open_client
from koord.cli.find_target import find_planned, follow_owners, make_target
from koord.cli.output import count_of, make_table, print_in
from koord.core.defrag.drain import DrainPlan
from koord.core.defrag.model import MovePlan, MoveStep
from koord.core.defrag.shapes import GpuShape, make_shape_unit
from koord.core.eviction.preemption import name_of
from koord.core.model.budgets import Budget
from koord.domains.placement import NODES, PODS
from koord.kube.errors import Forbidden, KubeError
from koord.kube.evictor import list_budgets

_NOBODY = Target(TargetKind.POD, "", "")


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """Which cluster is read."""

    kubeconfig: str
    context: str


def show_shape(
    cluster: ClusterAccess, shape: GpuShape, output: Output, *, as_exit_code: bool
) -> None:
    head, _, question = _read(cluster, "Defragmentation", None)
    unit = make_shape_unit(question.state, shape)
    _print(ask_moves(question, unit, str(shape)), head, output, as_exit_code=as_exit_code)


def show_waiting(
    cluster: ClusterAccess, named: tuple[str, str, str], output: Output, *, as_exit_code: bool
) -> None:
    typed = make_target(*named)
    if typed is None:
        fail("give a pod, podgroup, reservation or workload", ExitCode.USAGE)
    head, target, question = _read(cluster, "Defragmentation", typed)
    unit = find_unit(question.state, target)
    if unit is None:
        fail(
            f"{target.title} does not wait for a place, or is not complete; see koord explain",
            ExitCode.USAGE,
        )
    _print(ask_moves(question, unit, name_of(unit)), head, output, as_exit_code=as_exit_code)


def show_drain(
    cluster: ClusterAccess, nodes: tuple[str, ...], output: Output, *, as_exit_code: bool
) -> None:
    head, _, question = _read(cluster, "Drain", None)
    drain = ask_drain(question, nodes)
    if drain.unknown:
        fail(f"there is no node {', '.join(drain.unknown)}", ExitCode.USAGE)
    print_in(
        output,
        head,
        document=lambda: encode(drain),
        names=lambda: (f"pod/{move.pod.name}" for step in drain.steps for move in step.moves),
        text=lambda: make_drain_parts(drain),
    )
    if as_exit_code and drain.stuck:
        raise SystemExit(ExitCode.NOT_WELL)


def _read(
    cluster: ClusterAccess, answer: str, typed: Target | None
) -> tuple[AnswerHead, Target, MoveQuestion]:
    now = time.time()
    try:
        target, reading, budgets = asyncio.run(_read_all(cluster, typed, now))
    except KubeError as error:
        fail(str(error), ExitCode.UNREADABLE)
    except TargetNotFoundError as error:
        fail(str(error), ExitCode.USAGE)
    refuse_gaps(reading, NODES, PODS)
    if reading.preemption is None:
        warn("the operators' settings are not known: minRuntime and maxPerDay are taken for 0")
    question = MoveQuestion(reading.state, reading.preemption, budgets, now, reading.migration)
    return head_of(answer, reading, target), target, question


async def _read_all(
    cluster: ClusterAccess, typed: Target | None, now: float
) -> tuple[Target, Reading, tuple[Budget, ...]]:
    async with open_client(cluster.kubeconfig, cluster.context) as (client, access):
        target = _NOBODY
        if typed is not None:
            meant = Target(typed.kind, typed.namespace or access.namespace, typed.name)
            target = await find_planned(client, meant, now)
        reading = await read_cluster(client, target)
        if typed is not None:
            target = follow_owners(typed, target, reading.state)
        try:
            return target, reading, await list_budgets(client)
        except Forbidden:
            fail(
                "you may not list PodDisruptionBudgets, which no move may break",
                ExitCode.UNREADABLE,
            )


def _print(answer: DefragAnswer, head: AnswerHead, output: Output, *, as_exit_code: bool) -> None:
    outcome = answer.outcome
    print_in(
        output,
        head,
        document=lambda: encode(answer),
        names=lambda: (
            (f"pod/{move.pod.name}" for move in outcome.moves)
            if isinstance(outcome, MovePlan)
            else ()
        ),
        text=lambda: make_defrag_parts(answer),
    )
    if as_exit_code and not isinstance(outcome, MovePlan):
        raise SystemExit(ExitCode.NOT_WELL)


def make_defrag_parts(answer: DefragAnswer) -> Iterator[RenderableType]:
    outcome = answer.outcome
    if not isinstance(outcome, MovePlan):
        yield Text.assemble((answer.title, "bold"), " does not fit, whatever moves.")
        for sentence in (outcome.text(), *outcome.advice()):
            yield Padding(Text(sentence), (0, 0, 0, 2))
        return
    nodes = sorted({assignment.node for assignment in outcome.placement.assignments})
    if not outcome.steps:
        yield Text.assemble((answer.title, "bold"), f" fits now: {', '.join(nodes)}.")
        return
    moves = count_of(len(outcome.moves), "move")
    yield Text.assemble(
        (answer.title, "bold"),
        f" fits after {moves}, on {count_of(len(nodes), 'node')}: "
        f"{', '.join(nodes[:8])}{' …' if len(nodes) > 8 else ''}.",
    )
    yield _make_table(outcome.steps)
    cost, proof = outcome.cost.cost, outcome.proof
    work = cost.work // 360_000
    parts = [f"highest priority {cost.priority}", f"{work} GPU hours of work since checkpoints"]
    parts += [f"{count_of(cost.gangs, 'whole gang')}"] if cost.gangs else []
    yield Text(f"Cost: {', '.join(parts)}.")
    if proof.is_cheapest:
        yield Text("No other moves are fewer or cheaper.")
    elif proof.is_fewest:
        yield Text("No other moves are fewer; cheaper ones may exist.")
    else:
        yield Text("Fewer moves may exist: the search ended before it had tried all.")


def make_drain_parts(drain: DrainPlan) -> Iterator[RenderableType]:
    nodes = ", ".join(drain.nodes)
    moves = sum(len(step.moves) for step in drain.steps)
    yield Text.assemble(
        (nodes, "bold"),
        f": {count_of(moves, 'pod')} would move, {len(drain.stuck)} cannot, {len(drain.ending)} "
        "end with the node.",
    )
    if drain.steps:
        yield _make_table(drain.steps)
    if drain.stuck:
        table = make_table("CANNOT MOVE", "NODE", "WHY")
        for stuck in drain.stuck:
            table.add_row(stuck.pod.key, stuck.pod.node, stuck.text)
        yield table
    if drain.ending:
        yield Text(f"Created for their nodes: {', '.join(pod.key for pod in drain.ending)}.")


def _make_table(steps: Sequence[MoveStep]) -> RenderableType:
    table = make_table("STEP", "POD", "FROM", "TO", "WITH", right=("STEP",))
    for number, step in enumerate(steps, 1):
        for move in step.moves:
            gang = step.unit.name if len(step.moves) > 1 else ""
            table.add_row(str(number), move.pod.key, move.source, move.target, gang)
    return table
