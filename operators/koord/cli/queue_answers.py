"""Reads the cluster and prints what is asked of queues: ``koord queue explain``, ``reservations``.

Not imported for ``--help``.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import typer
from rich.console import RenderableType
from rich.text import Text

from koord.answers.encoding import encode
from koord.answers.gaps import head_of
from koord.answers.queue_explain import QueueExplanation
from koord.answers.queue_trial import TriedStart, try_queue_settings
from koord.answers.queue_usage import QueueUsage, view_queue_usage
from koord.answers.queue_view import QueueEntry
from koord.answers.reading import Reading, Target, TargetNotFoundError
from koord.answers.standing import QueueStanding, tell_time
from koord.answers.waiting import find_waiting
from koord.cli.cluster import (
    read_cluster,
    read_without_target,
    refuse_gaps,
    refuse_without_pods,
)
from koord.cli.common import ExitCode, Output, fail
from koord.cli.connection import open_client
from koord.cli.find_target import find_planned, follow_owners, make_target
from koord.cli.output import count_of, make_table, print_in
from koord.cli.queue_view import make_time_limit
from koord.core.model.text import format_age, named, suggest
from koord.core.queue.turns import StartReservation
from koord.domains.placement import NODES, PODS
from koord.domains.quota import QUOTAS
from koord.kube.errors import KubeError


@dataclass(frozen=True, slots=True)
class UnitQuestion:
    """Which unit, as it was typed; an empty ``namespace`` means that of the context."""

    kind: str
    namespace: str
    name: str
    kubeconfig: str = ""
    context: str = ""


def show_explanation(question: UnitQuestion, output: Output) -> None:
    reading, target = _read(question)
    refuse_without_pods(reading, target)
    explanation = explain_turn(find_waiting(reading, target, make_time_limit()), target, reading)
    print_in(
        output,
        head_of("Turn", reading, target),
        document=lambda: encode(explanation),
        names=lambda: (f"{explanation.entry.kind}/{name}" for name in explanation.entry.names),
        text=lambda: _draw_explanation(explanation),
    )
    if explanation.never_fits:
        raise typer.Exit(ExitCode.USAGE)


def explain_turn(
    waiting: Sequence[QueueEntry], target: Target, reading: Reading
) -> QueueExplanation:
    """Return the explanation of what a target stands for; ends the command if it does not wait."""
    at = next((at for at, entry in enumerate(waiting) if target.key in entry.names), None)
    if at is None:
        fail(f"{target.title} does not wait; see koord explain", ExitCode.USAGE)
    before = waiting[at - 1] if at and waiting[at].position else None
    return QueueExplanation(waiting[at], before, reading.state.now)


def _read(question: UnitQuestion) -> tuple[Reading, Target]:
    typed = make_target(question.kind, question.namespace, question.name)
    if typed is None:
        fail("give a pod, podgroup, reservation or workload", ExitCode.USAGE)

    async def read() -> tuple[Reading, Target]:
        async with open_client(question.kubeconfig, question.context) as (client, access):
            meant = Target(typed.kind, typed.namespace or access.namespace, typed.name)
            target = await find_planned(client, meant, time.time())
            reading = await read_cluster(client, target)
            return reading, follow_owners(meant, target, reading.state)

    try:
        return asyncio.run(read())
    except KubeError as error:
        fail(str(error), ExitCode.UNREADABLE)
    except TargetNotFoundError as error:
        fail(str(error), ExitCode.USAGE)


def _draw_explanation(explanation: QueueExplanation) -> Iterator[RenderableType]:
    entry, now = explanation.entry, explanation.now
    yield Text(f"{entry.kind}/{named(entry.names, 2)}", "bold")
    yield Text(f"Placement: {entry.reason.text()}")
    standing = entry.standing
    if standing is None:
        return
    yield Text(f"Turn: {standing.text()}")
    if explanation.before is not None:
        yield Text(f"Before it: {named(explanation.before.names, 2)}, {explanation.why_before}.")
    if standing.reservation is not None:
        held = format_age(standing.reservation.idle_seconds)
        yield Text(f"Price: its room was idle, and refused to others, for {held} so far.")
    if standing.waits_for:
        yield _draw_timeline(standing, now)


def _draw_timeline(standing: QueueStanding, now: float) -> RenderableType:
    table = make_table("ENDS", "WHAT", "KNOWN BY", padding=2)
    for other in standing.waits_for:
        table.add_row(tell_time(now, other.end), other.name, str(other.level))
    return table


def show_reservations(kubeconfig: str, context: str, output: Output) -> None:
    reading, target = read_without_target(kubeconfig, context)
    refuse_without_pods(reading, target)
    entries = [
        (entry, entry.standing.reservation)
        for entry in find_waiting(reading, target, make_time_limit())
        if entry.standing is not None and entry.standing.reservation is not None
    ]
    now = reading.state.now
    print_in(
        output,
        head_of("QueueReservations", reading, target),
        document=lambda: {
            "reservations": [
                {"names": list(entry.names), **encode(reservation)}
                for entry, reservation in entries
            ]
        },
        names=lambda: (f"{entry.kind}/{name}" for entry, _ in entries for name in entry.names),
        text=lambda: _draw_reservations(entries, now),
    )


def _draw_reservations(
    entries: Sequence[tuple[QueueEntry, StartReservation]], now: float
) -> Iterator[RenderableType]:
    if not entries:
        yield "No room is reserved for anything that waits."
        return
    table = make_table(
        "UNIT",
        "QUEUE",
        "KIND",
        "FROM",
        "SINCE",
        "IDLE",
        "NODES",
        right=("SINCE", "IDLE"),
        padding=2,
    )
    for entry, reservation in entries:
        table.add_row(
            f"{entry.kind}/{named(entry.names, 2)}",
            named(entry.quotas, 2),
            reservation.kind,
            tell_time(now, reservation.start),
            format_age(now - reservation.since),
            format_age(reservation.idle_seconds),
            f"{count_of(len(reservation.nodes), 'node')}: {named(sorted(reservation.nodes))}",
        )
    yield table


def show_trial(
    values: Mapping[str, object], namespace: str, kubeconfig: str, context: str, output: Output
) -> None:
    reading, target = read_without_target(kubeconfig, context, namespace)
    refuse_gaps(reading, NODES, PODS)
    starts = [
        start
        for start in try_queue_settings(reading, target, values, make_time_limit)
        if not namespace or namespace in start.entry.namespaces
    ]
    now = reading.state.now
    print_in(
        output,
        head_of("QueueTrial", reading, target),
        document=lambda: {"settings": dict(values), "waiting": encode(starts)},
        names=lambda: (f"{start.entry.kind}/{start.entry.names[0]}" for start in starts),
        text=lambda: _draw_trial(starts, now),
    )


def _draw_trial(starts: Sequence[TriedStart], now: float) -> Iterator[RenderableType]:
    if not starts:
        yield "Nothing waits."
        return
    table = make_table("UNIT", "START", "SIMULATED", "LATER", right=("LATER",), padding=2)
    for start in starts:
        later = "" if start.seconds is None else _tell_later(start.seconds)
        table.add_row(
            f"{start.entry.kind}/{named(start.entry.names, 2)}",
            "" if start.now is None else tell_time(now, start.now),
            "" if start.then is None else tell_time(now, start.then),
            later,
        )
    yield table
    yield "An empty time is not known, by the ends of what runs."


def _tell_later(seconds: int) -> str:
    return format_age(seconds) if seconds >= 0 else f"-{format_age(-seconds)}"


def show_usage(name: str, kubeconfig: str, context: str, output: Output) -> None:
    reading, _ = read_without_target(kubeconfig, context)
    refuse_gaps(reading, QUOTAS)
    usage = view_queue_usage(reading.state, name)
    if usage is None:
        names = reading.state.quotas.catalog.registry.specs
        fail(f"there is no quota {name}{suggest(name, names)}", ExitCode.USAGE)
    print_in(
        output,
        head_of("QueueUsage", reading),
        document=lambda: encode(usage),
        names=lambda: (user.user for user in usage.users),
        text=lambda: _draw_usage(usage),
    )


def _draw_usage(usage: QueueUsage) -> Iterator[RenderableType]:
    limits = ", ".join(
        f"{setting} {limit}" for setting, limit in usage.limits.items() if limit is not None
    )
    yield Text(f"{usage.queue}: {usage.policy}{f', {limits}' if limits else ''}")
    if not usage.users:
        yield "Nobody uses it."
        return
    table = make_table(
        "USER", "STARTED", "GPUS", "WAITING", "ASK", right=("STARTED", "GPUS", "WAITING", "ASK"),
        padding=2,
    )  # fmt: skip
    for user in usage.users:
        table.add_row(
            user.user,
            str(user.started),
            str(user.gpus),
            str(user.waiting),
            count_of(user.gpus_waiting, "GPU"),
        )
    yield table
