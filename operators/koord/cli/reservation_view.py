"""Reads the cluster and prints reservations: what ``koord reservation`` does.

Not imported for ``--help``.
"""

import time
from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType

from koord.answers.ages import format_age
from koord.answers.reading import Reading
from koord.answers.similar_names import suggest
from koord.cli.cluster import read_without_target, refuse_gaps
from koord.cli.common import ExitCode, Output, fail
from koord.cli.output import make_table, print_in
from koord.core.model.text import named
from koord.core.model.units import Amounts, format_amount
from koord.core.reservation.explain import explain
from koord.core.reservation.ledger import ReservationAccount
from koord.core.reservation.lifecycle import deadline_of
from koord.core.reservation.model import ReservationInfo
from koord.core.reservation.plugin import Reservations
from koord.kube.kinds import RESERVATIONS


def show_list(kubeconfig: str, context: str, *, output: Output) -> None:
    reading = _read(kubeconfig, context)
    now = time.time()
    reservations = reading.state.plugin(Reservations).reservations.values()
    shown = [
        _describe(reading, reservation, now)
        for reservation in sorted(reservations, key=lambda reservation: reservation.name)
    ]
    print_in(
        output,
        document=lambda: {"reservations": shown},
        names=lambda: (f"reservation/{reservation['name']}" for reservation in shown),
        text=lambda: _draw(shown),
    )


def show_pod(name: str, pod: str, kubeconfig: str, context: str, *, output: Output) -> None:
    reading = _read(kubeconfig, context)
    reservations = reading.state.plugin(Reservations).reservations.values()
    reservation = next(
        (reservation for reservation in reservations if reservation.name == name), None
    )
    if reservation is None:
        meant = suggest(name, (reservation.name for reservation in reservations))
        fail(f"there is no Reservation {name}{meant}", ExitCode.USAGE)
    tested_pod = reading.state.pod_by_key(pod)
    if tested_pod is None:
        meant = suggest(pod, (pod.key for pod in reading.state.pods.values()))
        fail(f"there is no pod {pod}{meant}; write NAMESPACE/NAME", ExitCode.USAGE)
    checks = explain(reading.state, reservation, tested_pod)
    table = make_table("RULE", "", "DETAIL")
    for check in checks:
        table.add_row(check.rule, "yes" if check.holds else "NO", check.detail)
    rules = [{"rule": check.rule, "holds": check.holds, "detail": check.detail} for check in checks]
    print_in(
        output,
        document=lambda: {"reservation": name, "pod": pod, "rules": rules},
        names=lambda: (f"reservation/{name}",),
        text=lambda: (table,),
    )


def _read(kubeconfig: str, context: str) -> Reading:
    reading, _ = read_without_target(kubeconfig, context)
    refuse_gaps(reading, RESERVATIONS)
    reading.state.refresh()
    return reading


def _describe(reading: Reading, reservation: ReservationInfo, now: float) -> dict[str, Any]:
    plugin, pods = reading.state.plugin(Reservations), reading.state.pods
    account = plugin.accounts.get(reservation.uid, ReservationAccount(reservation))
    deadline = deadline_of(reservation)
    users = [
        pods[charge.uid].key for charge in plugin.users_of(reservation.uid) if charge.uid in pods
    ]
    left = None if deadline is None or reservation.status.is_over else max(0, int(deadline - now))
    return {
        "name": reservation.name,
        "phase": reservation.status.phase or "Pending",
        "node": reservation.status.node,
        "reserved": _write(account.reserved or reservation.requests()),
        "used": _write(account.allocated()),
        "by": users,
        "secondsLeft": left,
    }


def _draw(shown: list[dict[str, Any]]) -> Iterator[RenderableType]:
    if not shown:
        yield "There are no Reservations."
        return
    table = make_table("NAME", "PHASE", "NODE", "RESERVED", "USED", "BY", "LEFT")
    for reservation in shown:
        left = "" if reservation["secondsLeft"] is None else format_age(reservation["secondsLeft"])
        amounts = (_join(reservation["reserved"]), _join(reservation["used"]))
        table.add_row(
            reservation["name"],
            reservation["phase"],
            reservation["node"],
            *amounts,
            named(reservation["by"]),
            left,
        )
    yield table


def _write(amounts: Amounts) -> dict[str, str]:
    return {name: format_amount(name, n) for name, n in sorted(amounts.items()) if n}


def _join(amounts: dict[str, str]) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in amounts.items())
