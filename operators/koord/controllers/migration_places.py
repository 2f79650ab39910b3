"""What is seen for a job: its pod, and the reservation that is to be the place of what replaces it.

Read from the copy of the cluster; nothing is decided or written here. Whoever evicts asks this
again right before, so that nobody is evicted for whom no place is kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from koord.api.keys.migration import JOB_UID
from koord.core.engine.state import ClusterState
from koord.core.migration.model import JobMode, MigrationJob, MigrationOptions, PodReference
from koord.core.migration.plugin import Migrations
from koord.core.migration.steps import PlacePhase, SeenPlace
from koord.core.model.pods import Pod
from koord.core.model.units import PODS
from koord.core.reservation.lifecycle import FALSE, SCHEDULED
from koord.core.reservation.matching import is_owner
from koord.core.reservation.model import ReservationInfo, ReservationPhase
from koord.core.reservation.plugin import Reservations, find_use


@dataclass(frozen=True, slots=True)
class MigrationPlaces:
    """Finds pods and places of jobs."""

    state: ClusterState
    options: MigrationOptions

    @property
    def jobs(self) -> Mapping[str, MigrationJob]:
        return self.state.plugin(Migrations).jobs

    def group_of(self, job: MigrationJob) -> list[MigrationJob]:
        return self.state.plugin(Migrations).of_group(job)

    def mode_of(self, job: MigrationJob) -> JobMode:
        return job.mode or self.options.default_mode

    def pod_of(self, job: MigrationJob) -> Pod | None:
        """Return the pod that a job moves; None if it has gone or ended."""
        reference = job.pod
        pods, state = self.state.pods, self.state
        pod = pods.get(reference.uid) if reference.uid else state.pod_by_key(reference.key)
        return pod if pod is not None and pod.node and not pod.phase.is_terminal else None

    def find(self, job: MigrationJob) -> ReservationInfo | None:
        """Return the reservation of a job, whatever it is."""
        name = job.reservation_name
        reservations = self.state.plugin(Reservations).reservations.values()
        return next((info for info in reservations if info.name == name), None)

    def see(self, job: MigrationJob) -> SeenPlace | None:
        info = self.find(job)
        if info is None:
            return None
        is_own = not job.reservation and info.labels.get(JOB_UID) == job.uid
        user = self._user_of(info)
        return SeenPlace(
            _phase_of(info, user),
            info.status.node,
            user,
            _tell(info),
            is_own,
            self._find_problem(job, info, is_own=is_own),
        )

    def has_place(self, job: MigrationJob) -> bool:
        """Whether the pod of a job may be evicted: its place is kept, or it needs none."""
        if self.mode_of(job) is JobMode.EVICT_DIRECTLY:
            return True
        pod, place = self.pod_of(job), self.see(job)
        return (
            pod is not None
            and place is not None
            and place.phase is PlacePhase.AVAILABLE
            and place.node != pod.node
            and not place.problem
        )

    def _user_of(self, info: ReservationInfo) -> PodReference | None:
        """Return the pod of which the API server shows that it uses a reservation."""
        charges = self.state.plugin(Reservations).users_of(info.uid)
        pods = (self.state.observed(charge.uid) for charge in charges)
        shown = (pod for pod in pods if pod is not None and pod.node and find_use(pod.allocations))
        user = next(shown, None)
        return None if user is None else PodReference(user.namespace, user.name, user.uid)

    def _find_problem(self, job: MigrationJob, info: ReservationInfo, *, is_own: bool) -> str:
        """Return why a reservation is no place for what replaces the pod of a job."""
        pod = self.pod_of(job)
        if pod is None or info.status.is_over:
            return ""
        if not is_own and not job.reservation:
            return f"the reservation {info.name} is not that of the job"
        if not is_owner(pod, info.owners, info.namespace):
            return f"the reservation {info.name} is for others than {pod.key}"
        held = info.status.allocatable
        short = [
            name
            for name, amount in pod.shape.requests
            if name != PODS and info.status.is_available and held.get(name, 0) < amount
        ]
        return f"the reservation {info.name} holds too little {short[0]}" if short else ""


def _phase_of(info: ReservationInfo, user: PodReference | None) -> PlacePhase:
    status = info.status
    if status.phase == ReservationPhase.FAILED or info.is_unschedulable:
        return PlacePhase.EXPIRED
    if status.phase == ReservationPhase.SUCCEEDED or user is not None:
        return PlacePhase.USED
    if status.is_available:
        return PlacePhase.AVAILABLE
    scheduled = status.condition(SCHEDULED)
    is_refused = scheduled is not None and scheduled.status == FALSE
    return PlacePhase.UNSCHEDULABLE if is_refused else PlacePhase.PENDING


def _tell(info: ReservationInfo) -> str:
    conditions = [condition.message for condition in info.status.conditions if condition.message]
    return "; ".join(conditions) or str(info.status.phase)
