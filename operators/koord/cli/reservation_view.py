"""Reads the cluster and prints reservations: what ``koord reservation`` does.

Not imported for ``--help``.
"""

import time
from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from koord.answers.encoding import encode, encode_amounts
from koord.answers.gaps import head_of
from koord.answers.reading import Reading
from koord.answers.reservations import ReservationUsage, view_reservation
from koord.cli.cluster import read_without_target, refuse_gaps
from koord.cli.common import ExitCode, Output, fail
from koord.cli.output import make_table, print_in
from koord.core.model.text import format_age, named, suggest
from koord.core.model.units import Amounts
from koord.core.reservation.explain import explain
from koord.core.reservation.plugin import Reservations
from koord.domains.reservation import RESERVATIONS


def show_list(kubeconfig: str, context: str, *, output: Output) -> None:
    reading = _read(kubeconfig, context)
    now = time.time()
    reservations = reading.state.plugin(Reservations).reservations.values()
    shown = [
        view_reservation(reading.state, reservation, now)
        for reservation in sorted(reservations, key=lambda reservation: reservation.name)
    ]
    print_in(
        output,
        head_of("Reservations", reading),
        document=lambda: {"reservations": encode(shown)},
        names=lambda: (f"reservation/{reservation.name}" for reservation in shown),
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
    reading.state.refresh()
    checks = explain(reading.state, reservation, tested_pod)
    table = make_table("RULE", "", "DETAIL")
    for check in checks:
        table.add_row(check.rule, "yes" if check.holds else "NO", check.detail)
    print_in(
        output,
        head_of("ReservationUse", reading),
        document=lambda: {"reservation": name, "pod": pod, "rules": encode(checks)},
        names=lambda: (f"reservation/{name}",),
        text=lambda: (table,),
    )


def _read(kubeconfig: str, context: str) -> Reading:
    reading, _ = read_without_target(kubeconfig, context)
    refuse_gaps(reading, RESERVATIONS)
    reading.state.refresh()
    return reading


def _draw(shown: Sequence[ReservationUsage]) -> Iterator[RenderableType]:
    if not shown:
        yield "There are no Reservations."
        return
    table = make_table("NAME", "PHASE", "NODE", "RESERVED", "USED", "BY", "LEFT")
    for reservation in shown:
        left = "" if reservation.seconds_left is None else format_age(reservation.seconds_left)
        amounts = (_join(reservation.reserved), _join(reservation.used))
        table.add_row(
            reservation.name,
            reservation.phase,
            reservation.node,
            *amounts,
            named(reservation.by),
            left,
        )
    yield table


def _join(amounts: Amounts) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in encode_amounts(amounts).items())
