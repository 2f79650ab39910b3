"""Says of one pod and one reservation which rule lets the pod in, and how much fits."""

from collections.abc import Iterator
from dataclasses import dataclass

from koord.core.engine.labels import is_tolerated
from koord.core.engine.state_view import StateView
from koord.core.model.pods import Pod
from koord.core.model.units import Amounts, format_amount
from koord.core.reservation.ledger import (
    ReservationAccount,
    lacks_inside,
    lacks_on_node,
    requests_of,
)
from koord.core.reservation.matching import (
    CORDONED,
    find_cause,
    is_owner,
    matches_affinity,
    matches_exactly,
    untolerated,
)
from koord.core.reservation.model import NAME, NO_HINTS, ReservationHints, ReservationInfo
from koord.core.reservation.plugin import Reservations
from koord.core.reservation.reasons import describe_insufficient


@dataclass(frozen=True, slots=True)
class Check:
    """One rule, whether it holds, and what it was decided by."""

    rule: str
    holds: bool
    detail: str = ""


def explain(state: StateView, reservation: ReservationInfo, pod: Pod) -> list[Check]:
    """Return the rules in the order in which they count; refresh the state before."""
    plugin = state.plugin(Reservations)
    account = plugin.accounts.get(reservation.uid, ReservationAccount(reservation))
    extension = next((extension for name, extension in pod.extensions if name == NAME), NO_HINTS)
    hints = extension if isinstance(extension, ReservationHints) else NO_HINTS
    return [
        *_check_state(account),
        *_check_match(state, reservation, pod, hints),
        *_check_amounts(state, account, pod),
    ]


def _check_state(account: ReservationAccount) -> Iterator[Check]:
    reservation = account.reservation
    status = reservation.status
    where = f"on {status.node}" if status.node else "without a node"
    closed = find_cause(reservation, account.pods)
    why = f": {closed.text()}" if closed is not None and not status.is_available else ""
    yield Check("available", status.is_available, f"{status.phase or 'Pending'} {where}{why}")
    for field, problem in reservation.problems:
        yield Check("valid", holds=False, detail=f"{field} {problem}")
    if reservation.is_once:
        yield Check("used once", not account.pods, f"{account.pods} pods use it")


def _check_match(
    state: StateView, reservation: ReservationInfo, pod: Pod, hints: ReservationHints
) -> Iterator[Check]:
    every_namespace = state.plugin(Reservations).compat
    namespace = pod.namespace if every_namespace else reservation.namespace
    where = f"those without a namespace are in namespace {namespace or '(none)'}"
    yield Check("owners", is_owner(pod, reservation.owners, namespace), where)
    if hints.name:
        yield Check("name", hints.name == reservation.name, f"the pod names {hints.name}")
    else:
        is_open = not reservation.is_unschedulable or is_tolerated(CORDONED, hints.tolerations)
        yield Check("cordon", is_open)
        taint = untolerated(reservation.taints, hints)
        text = "" if taint is None else f"{taint.key}={taint.value}:{taint.effect}"
        yield Check("taints", taint is None, text)
        row = state.table.row_of.get(reservation.status.node)
        of_node = {} if row is None else state.table.node_at(row).labels
        labels = {**of_node, **reservation.labels}
        yield Check("affinity", matches_affinity(reservation.name, labels, hints))
    requests, reserved = dict(pod.shape.requests), reservation.status.allocatable
    is_exact = matches_exactly(requests, reserved, hints.exact)
    yield Check("exact match", is_exact, ", ".join(hints.exact))


def _check_amounts(state: StateView, account: ReservationAccount, pod: Pod) -> Iterator[Check]:
    requests = requests_of(pod.shape)
    row = state.table.row_of.get(account.reservation.status.node)
    if row is not None:
        held = account.held()
        free = {
            name: int(state.table.allocatable[column, row] - state.table.used[column, row])
            + held.get(name, 0)
            - account.reservation.inner.get(name, 0)
            for name, column in state.table.columns.items()
        }
        lacking = lacks_on_node(requests, free, account.ignored)
        yield Check("limit of the node", not lacking, _write(requests, free))
    lacks = lacks_inside(requests, account)
    left = account.left()
    text = "; ".join(describe_insufficient(lack, is_detailed=True) for lack in lacks)
    yield Check("limit inside", not lacks, text or f"left: {_write(left, left)}")


def _write(names: Amounts, amounts: Amounts) -> str:
    return ", ".join(f"{name} {format_amount(name, amounts.get(name, 0))}" for name in names)
