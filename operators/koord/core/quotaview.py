"""What there is to say about quotas: their numbers in order of the tree, and what would be if.

Nothing is decided anew here: shares come from the solver, and the answer to "what if" from the
planner, asked about pods that do not exist.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from koord.core.gang.group import make_gang_key
from koord.core.gang.model import GangClaim, GangSource, GangSpec
from koord.core.gang.quorum import Ready, demands
from koord.core.placement.planner import plan
from koord.core.placement.scoring import Scoring
from koord.core.plan import Unit
from koord.core.pods import Handling, Pod, PodShape
from koord.core.queue import find_pending, unit_of
from koord.core.quota.book import key_of
from koord.core.quota.fault import InvalidQuota
from koord.core.quota.model import ROOT, QuotaName, TreeId, Usage
from koord.core.quota.overuse import Overuse, find_overuse
from koord.core.quota.status import Summary, summarise
from koord.core.quota.tree import QuotaTree
from koord.core.reasons import Planned, Reason, ReasonCode
from koord.core.state import ClusterState
from koord.core.units import PODS, Amounts

_WHAT_IF = "what-if"


@dataclass(frozen=True, slots=True)
class QuotaView:
    """One quota in force: where it hangs, its numbers, and what is odd about it.

    ``problem`` is what is wrong with the object as written now; what was valid last is in force.
    ``waiting`` counts its pods that wait, by the reason that planning them gives.
    """

    summary: Summary
    namespace: str
    depth: int
    over: tuple[Overuse, ...] = ()
    problem: InvalidQuota | None = None
    waiting: Mapping[ReasonCode, int] | None = None


@dataclass(frozen=True, slots=True)
class QuotaOverview:
    """All quotas, parents before children, and those that are not in force.

    ``outside`` is what the pods under no quota use; ``total`` what each tree shares out.
    """

    quotas: tuple[QuotaView, ...]
    invalid: tuple[InvalidQuota, ...]
    total: Mapping[TreeId, Amounts]
    outside: Usage


def view_quotas(state: ClusterState) -> QuotaOverview:
    """Return everything that is known of quotas."""
    ledger = state.open_ledger()
    book = state.quotas.book
    over: dict[QuotaName, list[Overuse]] = {}
    for one in find_overuse(ledger):
        over.setdefault(one.quota, []).append(one)
    views = [
        QuotaView(
            summarise(ledger, name),
            book.registry.specs[name].namespace,
            depth,
            tuple(over.get(name, ())),
            book.problems.get(key_of(book.registry.specs[name])),
        )
        for _, tree in sorted(book.trees().items())
        for name, depth in _walk(tree, ROOT, 0)
        if ledger.find(name) is not None
    ]
    invalid = [
        problem for problem in book.problems.values() if problem.quota not in book.registry.specs
    ]
    return QuotaOverview(
        tuple(views),
        tuple(sorted(invalid, key=lambda problem: problem.quota)),
        {id_: one.snapshot.total for id_, one in state.quotas.solutions.items()},
        state.quotas.outside(),
    )


def view_quota(state: ClusterState, name: QuotaName, scoring: Scoring) -> QuotaView | None:
    """Return one quota, with why its pods wait; None if it is not in force."""
    overview = view_quotas(state)
    found = next((one for one in overview.quotas if one.summary.name == name), None)
    if found is None:
        return None
    waiting = Counter(_reasons(state, name, scoring))
    return QuotaView(
        found.summary, found.namespace, found.depth, found.over, found.problem, waiting
    )


def ask_what_if(
    state: ClusterState, quota: QuotaName, requests: Amounts, pods: int, scoring: Scoring
) -> Reason:
    """Tell what would become of a gang of equal pods in a quota now; adds them to the state."""
    shape = PodShape(tuple(sorted({**requests, PODS: 1}.items())))
    key = make_gang_key(_WHAT_IF, _WHAT_IF)
    spec = GangSpec(key, pods, pods, 0, group=(key,), source=GangSource.ANNOTATION)
    claim = GangClaim(key, GangSource.ANNOTATION, spec)
    newest = max((pod.created for pod in state.pods.values()), default=0.0)
    for at in range(pods):
        state.upsert_pod(
            Pod(
                uid=f"{_WHAT_IF}-{at}",
                namespace=_WHAT_IF,
                name=f"{_WHAT_IF}-{at}",
                shape=shape,
                handling=Handling.RELEASE_AND_BIND,
                gang=claim,
                created=newest,
                quota=quota,
            )
        )
    made = demands(state.book, key)
    return _first_reason(state, made.units, scoring) if isinstance(made, Ready) else made


def _walk(tree: QuotaTree, name: QuotaName, depth: int) -> Iterator[tuple[QuotaName, int]]:
    for child in tree.children(name):
        yield child, depth
        yield from _walk(tree, child, depth + 1)


def _reasons(state: ClusterState, name: QuotaName, scoring: Scoring) -> Iterator[ReasonCode]:
    """Yield, for each waiting pod of ours in a quota, why it waits: each unit taken for itself."""
    gangs = set()
    for pod in state.pods.values():
        if not pod.is_waiting or state.quotas.quota_of(pod) != name:
            continue
        if pod.gang is not None:
            gangs.add(pod.gang.key)
        elif pod.is_plannable:
            yield _first_reason(state, (unit_of(pod),), scoring).code
    for gang in sorted(gangs):
        made = demands(state.book, gang)
        members = [one for one in state.book.members(gang).values() if one.is_waiting]
        if not isinstance(made, Ready):
            yield from [made.code] * len(members)
        elif made.units:
            yield from [_first_reason(state, made.units, scoring).code] * len(members)


def _first_reason(state: ClusterState, units: tuple[Unit, ...], scoring: Scoring) -> Reason:
    outcome = plan(state.snapshot(lambda: find_pending(state)), units, scoring)
    if outcome.refusals:
        return outcome.refusals[0].reason
    placed = [one for placement in outcome.placements for one in placement.assignments]
    return Planned(len(placed), len({one.node for one in placed}))
