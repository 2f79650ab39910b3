"""Who uses a quota: its gangs and pods, with what each of them takes. For people; decides nothing.

Counted as shares are: a pod that terminates still uses its quota, and one name of a device stands
for the others. Where a quota refuses, they are named as a hint, and whether their room comes back;
only those that exist. What would help is advice of the reason itself.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from koord.answers.pod_tallies import tally_pods
from koord.core.engine.state import ClusterState
from koord.core.eviction.reclaim import find_reach
from koord.core.model.pods import Pod, PodPhase
from koord.core.model.text import named
from koord.core.model.units import Amounts, format_amount
from koord.core.quota.entitlement import ReclaimSetting, tell_reclaim
from koord.core.quota.ledger import Account, Ledger
from koord.core.quota.model import ROOT, QuotaName
from koord.core.quota.reasons import (
    AncestorInsufficient,
    InsufficientEntitlement,
    InsufficientMax,
    QuotaExceeded,
)
from koord.core.quota.reclaim import Overuse, find_entitlement, find_overuse
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


def find_quotas_in_use(state: ClusterState) -> Collection[tuple[str, QuotaName]]:
    """Return which namespaces have pods that count for which quotas."""
    return tally_pods(state).quotas.keys()


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


MOST_QUOTAS: Final = 3
_ENTITLED: Final = "They are entitled to it, so it comes only when they end or request less."


def hint_at_quota(
    state: ClusterState, reason: QuotaExceeded, reclaim: ReclaimSetting
) -> Iterator[str]:
    """Yield who uses what a quota lacks first; nothing if the refusal brings a claim."""
    explained = InsufficientMax | InsufficientEntitlement | AncestorInsufficient
    if reason.context is not None or not isinstance(reason, explained):
        return
    ledger = state.open_ledger()
    account = ledger.find(reason.quota)
    if account is None:
        return
    short = reason.shortages[0]
    key = short.resource
    used = account.used.get(key, 0)
    if users := name_users(state, state.quotas.catalog.registry.family(reason.quota), key):
        yield f"Quota {reason.quota} uses {format_amount(key, used)} {key}: {users}."
    if not isinstance(reason, InsufficientEntitlement):
        return
    if siblings := _find_others(ledger, account, key):
        over = {
            overuse.quota: overuse for overuse in find_overuse(ledger) if overuse.resource == key
        }
        wanted = next(
            (over[other.spec.name] for other in siblings if other.spec.name in over), None
        )
        most = find_entitlement(ledger, reason.quota).get(key, 0)
        is_claim = used + short.requested <= most
        when = (
            _tell_when(state, ledger, wanted, reclaim)
            if is_claim
            else _tell_no_claim(wanted, account, most)
        )
        yield f"{_tell_others(state, ledger, siblings, key)} {when}"


def name_users(state: ClusterState, quotas: Iterable[QuotaName], key: str) -> str:
    """Write ``gang t/hog (24), pod t/x (6)``: what uses most of a resource, and how much."""
    most = largest_first(find_users(state, set(quotas)), key)
    return named(
        [
            f"{quota_user.title} ({format_amount(key, quota_user.amounts[key])})"
            for quota_user in most
        ]
    )


def _tell_others(state: ClusterState, ledger: Ledger, siblings: Sequence[Account], key: str) -> str:
    """Say which quotas have the rest of what is divided."""
    sentences = [_tell_quota(state, other, key, ledger) for other in siblings[:MOST_QUOTAS]]
    more = len(siblings) - len(sentences)
    if more:
        sentences.append(f"{more} more quotas have parts of it")
    return f"The rest is shared: {'; '.join(sentences)}."


def _find_others(ledger: Ledger, account: Account, key: str) -> list[Account]:
    """Return the siblings that have any of a resource; those of a quota above if none has."""
    tree = ledger.solution(account.spec.name).inputs.tree
    for name in account.path:
        spec = ledger.account(name).spec
        siblings = [ledger.account(child) for child in tree.children(spec.parent) if child != name]
        having = [sibling for sibling in siblings if max(_has(sibling, key)) > 0]
        if having or spec.parent == ROOT:
            return sorted(
                having, key=lambda account: (*(-n for n in _has(account, key)), account.spec.name)
            )
    return []


def _has(account: Account, key: str) -> tuple[int, int]:
    return account.used.get(key, 0), account.share.get(key, 0)


def _tell_quota(state: ClusterState, account: Account, key: str, ledger: Ledger) -> str:
    name = account.spec.name
    least = ledger.solution(name).minimum(name).get(key, 0)
    used, share, guaranteed = (
        format_amount(key, amount) for amount in (*_has(account, key), least)
    )
    users = name_users(state, state.quotas.catalog.registry.family(name), key)
    by = f", by {users}" if users else ""
    return (
        f"quota {name} is entitled to {share} {key} (guaranteed {guaranteed}) and uses {used}{by}"
    )


def _tell_when(
    state: ClusterState, ledger: Ledger, over: Overuse | None, reclaim: ReclaimSetting
) -> str:
    """Say when a quota gets what it is entitled to."""
    if over is None:
        return _ENTITLED
    text = _tell_overuse(over)
    reach = find_reach(state, ledger, over.quota, over.resource)
    if not reach.movable and not (reclaim.is_known and reclaim.after is None):
        return f"{text} {reach.text(over.resource)}"
    if not reclaim.is_known:
        return text
    return f"{text} {tell_reclaim(reclaim.after, reclaim.due_in(over.quota))}"


def _tell_no_claim(over: Overuse | None, account: Account, entitled: int) -> str:
    """Say that nothing is reclaimed for a unit that asks for more than its quota may have."""
    if over is None:
        return _ENTITLED
    most = format_amount(over.resource, entitled)
    return (
        f"{_tell_overuse(over)} With this, quota {account.spec.name} would use more than it is "
        f"entitled to ({most}), so nothing is reclaimed for it."
    )


def _tell_overuse(over: Overuse) -> str:
    amount = format_amount(over.resource, over.over)
    return f"Quota {over.quota} uses {amount} more than its share."
