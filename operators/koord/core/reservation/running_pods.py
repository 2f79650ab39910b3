"""Finds the running pods that a reservation may take in, in one planning cycle."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from koord.core.engine.cycle import Cycle
from koord.core.model.pods import Handling, Pod
from koord.core.reservation.ledger import ReservationAccount
from koord.core.reservation.matching import judge
from koord.core.reservation.model import (
    NAME,
    NO_HINTS,
    PRE_ALLOCATABLE,
    Owner,
    PreAllocation,
    ReservationHints,
    ReservationInfo,
    ReservationState,
)
from koord.core.reservation.pre_allocation import PreAllocationChoice, RunningPod, choose

if TYPE_CHECKING:
    from koord.core.reservation.plugin import Reservations


class RunningPods:
    """The running pods that reservations may take in, as of one cycle."""

    def __init__(self, plugin: "Reservations", cycle: Cycle) -> None:
        self._plugin, self._cycle = plugin, cycle
        self._by_row: dict[str, dict[int, list[RunningPod]]] = {}
        """Reservation -> the candidates on each row."""

    def options(
        self, reservation: ReservationInfo, rows: Iterable[int]
    ) -> dict[int, PreAllocationChoice]:
        """Return which pods a reservation would take in on rows that have candidates."""
        pre_allocation, pod = reservation.pre_allocation, reservation.pod
        if pre_allocation is None or pod is None:
            return {}
        account = ReservationAccount(
            replace(reservation, status=ReservationState(allocatable=reservation.requests()))
        )
        candidates = self._candidates(reservation, pre_allocation)
        charged = {
            row: [
                running_pod
                for running_pod in candidates[row]
                if self._cycle.is_charged(running_pod.uid)
            ]
            for row in rows
            if row in candidates
        }
        return {
            row: choose(pre_allocation, account, self._free(row), running_pods)
            for row, running_pods in charged.items()
        }

    def _free(self, row: int) -> dict[str, int]:
        table, used = self._cycle.table, self._cycle.used
        columns = table.columns.items()
        return {name: int(table.allocatable[at, row] - used[at, row]) for name, at in columns}

    def _candidates(
        self, reservation: ReservationInfo, pre_allocation: PreAllocation
    ) -> Mapping[int, list[RunningPod]]:
        candidates = self._by_row.get(reservation.uid)
        if candidates is None:
            candidates = self._by_row[reservation.uid] = {}
            for pod in self._plugin.pods.values():
                row = self._cycle.table.row_of.get(pod.node, -1)
                if row >= 0 and self._may_take(reservation, pre_allocation, pod, row):
                    rank = _hints_of(pod).rank
                    candidate = RunningPod(pod.uid, dict(pod.shape.requests), rank, pod.key)
                    candidates.setdefault(row, []).append(candidate)
        return candidates

    def _may_take(
        self, reservation: ReservationInfo, pre_allocation: PreAllocation, pod: Pod, row: int
    ) -> bool:
        """Whether a reservation may take in a pod; its record must be one of the operators."""
        if pod.recorded is None or pod.handling is Handling.RESERVE or not pod.is_alive:
            return False
        use = self._plugin.given_to(pod.uid)
        if use is not None and use.uid != reservation.uid:
            return False
        owners = tuple(owner for owner in reservation.owners if owner.selector is not None)
        if pre_allocation.is_clusterwide:
            if pod.profile.labels.get(PRE_ALLOCATABLE) != "true":
                return False
            owners = (Owner(selector=()),)
        status = ReservationState(allocatable=reservation.requests())
        like = replace(reservation, owners=owners, is_unschedulable=False, status=status)
        labels = self._cycle.table.node_at(row).labels
        every_namespace = self._plugin.compat or pre_allocation.is_clusterwide
        return judge(pod, _hints_of(pod), like, labels, every_namespace=every_namespace).may_use


def _hints_of(pod: Pod) -> ReservationHints:
    hints = next((extension for name, extension in pod.extensions if name == NAME), NO_HINTS)
    return hints if isinstance(hints, ReservationHints) else NO_HINTS
