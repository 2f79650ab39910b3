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
    NO_WISHES,
    PRE_ALLOCATABLE,
    Owner,
    PreAllocation,
    Reservation,
    Status,
    Wishes,
)
from koord.core.reservation.pre_allocation import Chosen, RunningPod, choose

if TYPE_CHECKING:
    from koord.core.reservation.plugin import Reservations


class RunningPods:
    """The running pods that reservations may take in, as of one cycle."""

    def __init__(self, plugin: "Reservations", cycle: Cycle) -> None:
        self._plugin, self._cycle = plugin, cycle
        self._by_row: dict[str, dict[int, list[RunningPod]]] = {}
        """Reservation -> the candidates on each row."""

    def options(self, reservation: Reservation, rows: Iterable[int]) -> dict[int, Chosen]:
        """Return which pods a reservation would take in on rows that have candidates."""
        wish, pod = reservation.pre_allocation, reservation.pod
        if wish is None or pod is None:
            return {}
        account = ReservationAccount(
            replace(reservation, status=Status(allocatable=reservation.requests()))
        )
        candidates = self._candidates(reservation, wish)
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
            row: choose(wish, account, self._free(row), running_pods)
            for row, running_pods in charged.items()
        }

    def _free(self, row: int) -> dict[str, int]:
        table, used = self._cycle.table, self._cycle.used
        columns = table.columns.items()
        return {name: int(table.allocatable[at, row] - used[at, row]) for name, at in columns}

    def _candidates(
        self, reservation: Reservation, wish: PreAllocation
    ) -> Mapping[int, list[RunningPod]]:
        candidates = self._by_row.get(reservation.uid)
        if candidates is None:
            candidates = self._by_row[reservation.uid] = {}
            for pod in self._plugin.pods.values():
                row = self._cycle.table.row_of.get(pod.node, -1)
                if row >= 0 and self._may_take(reservation, wish, pod, row):
                    rank = _wishes(pod).rank
                    candidate = RunningPod(pod.uid, dict(pod.shape.requests), rank, pod.key)
                    candidates.setdefault(row, []).append(candidate)
        return candidates

    def _may_take(self, reservation: Reservation, wish: PreAllocation, pod: Pod, row: int) -> bool:
        """Whether a reservation may take in a pod; its record must be one of the operators."""
        if pod.recorded is None or pod.handling is Handling.RESERVE or not pod.is_alive:
            return False
        use = self._plugin.given_to(pod.uid)
        if use is not None and use.uid != reservation.uid:
            return False
        owners = tuple(owner for owner in reservation.owners if owner.selector is not None)
        if wish.is_clusterwide:
            if pod.profile.labels.get(PRE_ALLOCATABLE) != "true":
                return False
            owners = (Owner(selector=()),)
        status = Status(allocatable=reservation.requests())
        like = replace(reservation, owners=owners, is_unschedulable=False, status=status)
        labels = self._cycle.table.node_at(row).labels
        every_namespace = self._plugin.compat or wish.is_clusterwide
        return judge(pod, _wishes(pod), like, labels, every_namespace=every_namespace).may_use


def _wishes(pod: Pod) -> Wishes:
    wishes = next((extension for name, extension in pod.extensions if name == NAME), NO_WISHES)
    return wishes if isinstance(wishes, Wishes) else NO_WISHES
