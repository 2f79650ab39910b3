"""Reads the cluster and prints what waits: ``koord queue``. Not imported for ``--help``."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from rich.console import RenderableType

from koord.answers.queue_view import QueuePlace, Waiting, view_queue
from koord.cli.cluster import (
    Reading,
    Target,
    read_without_target,
    refuse_unknown_namespace,
    refuse_without_pods,
)
from koord.cli.common import Output, warn
from koord.cli.connection import open_client
from koord.cli.missing_rights import is_unknown, keep_known, list_warnings
from koord.cli.output import format_age, make_table, print_in
from koord.cli.reported import Reports
from koord.cli.suspended_jobs import HeldJob, list_held, view_held
from koord.core.engine.scoring import Scoring
from koord.core.model.text import format_time, named
from koord.kube.errors import KubeError
from koord.kube.kinds import POD_GROUPS, PODS

_JOBS_UNKNOWN = "you may not list jobs.batch: suspended Jobs are left out"


def show(namespace: str, kubeconfig: str, context: str, *, output: Output) -> None:
    reading, target = read_without_target(kubeconfig, context, namespace)
    refuse_without_pods(reading, target)
    refuse_unknown_namespace(reading, namespace)
    held = read_held(kubeconfig, context, target.namespace)
    warnings = list_warnings(reading, target) + (() if held is not None else (_JOBS_UNKNOWN,))
    for warning in warnings:
        warn(warning)
    waiting_units = (*find_waiting(reading, target), *view_held(reading.state, held or []))
    shown = [
        waiting_unit
        for waiting_unit in waiting_units
        if not namespace or namespace in waiting_unit.namespaces
    ]
    now = time.time()
    print_in(
        output,
        document=lambda: {
            "waiting": [make_document(waiting_unit) for waiting_unit in shown],
            "warnings": list(warnings),
        },
        names=lambda: (
            f"{waiting_unit.kind}/{name}" for waiting_unit in shown for name in waiting_unit.names
        ),
        text=lambda: draw(shown, now, is_wide=output is Output.WIDE),
    )


def read_held(kubeconfig: str, context: str, namespace: str) -> list[HeldJob] | None:
    """Return Jobs that ``suspend`` holds; None if they cannot be read."""

    async def read() -> list[HeldJob] | None:
        async with open_client(kubeconfig, context) as (client, _):
            return await list_held(client, namespace)

    try:
        return asyncio.run(read())
    except KubeError:
        return None


def find_waiting(reading: Reading, target: Target) -> tuple[Waiting, ...]:
    """Return what waits, as far as it can be known from what was read in the target's namespace.

    The operators' reason stands where ours is not certain, or cannot be found here.
    """
    state, reports = reading.state, Reports(reading.reports, reading.leader)
    state.refresh()
    waiting_units = (
        reports.correct(
            waiting_unit, state, keep_known(waiting_unit.reason, reading, target.namespace)
        )
        for waiting_unit in view_queue(state, Scoring(), reading.reclaim)
    )
    if reading.extent_of(PODS) is None and not is_unknown(reading, POD_GROUPS.name):
        return tuple(waiting_units)
    return tuple(
        sorted((_placed(waiting_unit, reading) for waiting_unit in waiting_units), key=_order_of)
    )


def _placed(waiting_unit: Waiting, reading: Reading) -> Waiting:
    """Return what waits with the place that the operators reported: from here none is known."""
    reported_places = (
        reading.places[name] for name in waiting_unit.names if name in reading.places
    )
    place = next(reported_places, QueuePlace(0, 0)) if waiting_unit.position else QueuePlace(0, 0)
    return replace(
        waiting_unit,
        position=place.position,
        gpus_ahead=place.gpus_ahead,
        quotas=waiting_unit.quotas or tuple(_find_quotas(waiting_unit, reading)),
    )


def _find_quotas(waiting_unit: Waiting, reading: Reading) -> list[str]:
    """Return the quotas that pods name by label, or those that list their namespace."""
    state = reading.state
    if waiting_unit.kind == "pod":
        pods = [pod for name in waiting_unit.names if (pod := state.pod_by_key(name)) is not None]
    else:
        pods = [pod for name in waiting_unit.names for pod in state.gangs.members(name).values()]
    named_ones = {pod.quota for pod in pods if pod.quota}
    quotas = reading.reported_quotas or ()
    bound = {
        each.view.summary.name for each in quotas if waiting_unit.namespaces & {*each.namespaces}
    }
    return sorted(named_ones or bound)


def _order_of(waiting_unit: Waiting) -> tuple[bool, int]:
    return (not waiting_unit.position, waiting_unit.position)


def make_document(waiting_unit: Waiting) -> dict[str, Any]:
    return {
        "position": waiting_unit.position or None,
        "kind": waiting_unit.kind,
        "names": list(waiting_unit.names),
        "pods": waiting_unit.pods,
        "required": waiting_unit.required,
        "reason": waiting_unit.reason.code,
        "message": waiting_unit.reason.text(),
        "since": format_time(waiting_unit.since),
        "quotas": list(waiting_unit.quotas),
        "gpus": waiting_unit.gpus,
        "gpusAhead": waiting_unit.gpus_ahead,
        "priority": waiting_unit.priority,
        "isRepair": waiting_unit.is_repair,
    }


def draw(shown: Sequence[Waiting], now: float, *, is_wide: bool) -> Iterator[RenderableType]:
    if not shown:
        yield "Nothing waits."
        return
    more = ("PODS", "NEEDED", "MESSAGE") if is_wide else ()
    table = make_table(
        "#", "UNIT", "REASON", "AGE", "QUOTA", "GPUS", "PRIORITY", "AHEAD", *more,
        right=("#", "AGE", "GPUS", "PRIORITY", "AHEAD", "PODS", "NEEDED"),
        padding=2,
    )  # fmt: skip
    for waiting_unit in shown:
        details = (
            (str(waiting_unit.pods), str(waiting_unit.required), waiting_unit.reason.text())
            if is_wide
            else ()
        )
        table.add_row(
            str(waiting_unit.position or ""),
            f"{waiting_unit.kind}/{named(waiting_unit.names, 2)}",
            _describe(waiting_unit),
            format_age(now - waiting_unit.since),
            named(waiting_unit.quotas, 2),
            str(waiting_unit.gpus),
            str(waiting_unit.priority),
            str(waiting_unit.gpus_ahead) if waiting_unit.position else "",
            *details,
        )
    yield table


def _describe(waiting_unit: Waiting) -> str:
    """Return the reason; a unit that fits is about to be placed."""
    return "Placeable" if waiting_unit.reason.is_placed else waiting_unit.reason.code
