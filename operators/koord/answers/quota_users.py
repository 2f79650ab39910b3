"""Who uses a quota: its gangs and pods, with what each of them takes. For people; decides nothing.

Counted as shares are: a pod that terminates still uses its quota, and one name of a device stands
for the others.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from koord.core.engine.state import ClusterState
from koord.core.model.pods import Pod, PodPhase
from koord.core.model.units import Amounts
from koord.core.quota.model import QuotaName
from koord.core.quota.usage import count_devices


@dataclass(slots=True)
class QuotaUser:
    """A gang, or a pod without one, that uses a quota with ``pods`` pods.

    ``since`` is when the first of them started, or was created; in seconds since the epoch.
    """

    kind: str
    """``gang`` or ``pod``."""
    name: str
    """``namespace/name``."""
    quota: QuotaName
    amounts: dict[str, int] = field(default_factory=dict)
    pods: int = 0
    running: int = 0
    terminating: int = 0
    since: float = 0.0

    @property
    def title(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def state(self) -> str:
        """Return ``Running`` if all of its pods run, ``Terminating``, or ``Bound``."""
        if self.terminating == self.pods:
            return "Terminating"
        return "Running" if self.running == self.pods else "Bound"

    def add(self, pod: Pod, amounts: Amounts) -> None:
        began = pod.started or pod.created
        self.since = min(self.since, began) if self.pods else began
        self.pods += 1
        self.running += pod.phase is PodPhase.RUNNING and not pod.is_terminating
        self.terminating += pod.is_terminating
        for key, amount in amounts.items():
            self.amounts[key] = self.amounts.get(key, 0) + amount


def find_users(state: ClusterState, quotas: Collection[QuotaName]) -> tuple[QuotaUser, ...]:
    """Return what uses any of these quotas themselves, by quota and name."""
    cache = state.quotas
    users: dict[tuple[QuotaName, str], QuotaUser] = {}
    counted: dict[tuple[tuple[str, int], ...], Amounts] = {}
    for pod in state.pods.values():
        use = cache.usage.get(pod.uid)
        if use is None or not use.is_used or use.quota not in quotas:
            continue
        requests = cache.requests_of(pod)
        if requests not in counted:
            counted[requests] = count_devices(dict(requests), cache.rules)
        kind, name = ("pod", pod.title) if pod.gang is None else ("gang", pod.gang.key)
        user = users.setdefault((use.quota, f"{kind} {name}"), QuotaUser(kind, name, use.quota))
        user.add(pod, counted[requests])
    return tuple(users[key] for key in sorted(users))


def largest_first(users: Collection[QuotaUser], key: str) -> list[QuotaUser]:
    """Return those that use a resource, the largest first."""
    using = [user for user in users if user.amounts.get(key, 0) > 0]
    return sorted(using, key=lambda quota_user: (-quota_user.amounts[key], quota_user.title))
