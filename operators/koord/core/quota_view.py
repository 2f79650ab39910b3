"""Quotas for people: their numbers in order of the tree, and simulated changes.

Nothing is decided here: shares come from the solver, and simulations from the planner, on a copy of
the state with pods that do not exist.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from koord.core.explain import first_refusal
from koord.core.framework.planner import plan
from koord.core.framework.scoring import Scoring
from koord.core.gang.group import make_gang_key
from koord.core.gang.quorum import Ready, count_to_replace, demands
from koord.core.gang_model import GangClaim, GangSource, GangSpec
from koord.core.plan import Unit
from koord.core.pods import Handling, Pod, PodShape
from koord.core.queue import find_pending, unit_of
from koord.core.quota.catalog import QuotaCatalog, key_of
from koord.core.quota.claims import UNKNOWN, ReclaimSetting
from koord.core.quota.model import ROOT, QuotaName, QuotaSpec, TreeId, Usage
from koord.core.quota.reclaim import Overuse, find_overuse
from koord.core.quota.share_terms import Loan, Terms, find_loans, find_terms
from koord.core.quota.spec_errors import InvalidQuota
from koord.core.quota.status import Summary, name_state, summarise
from koord.core.quota.tree import QuotaTree
from koord.core.reasons import Reason
from koord.core.state import ClusterState
from koord.core.units import PODS, Amounts

_WHAT_IF = "what_if"
"""A name that no pod and no PodGroup can have."""


@dataclass(frozen=True, slots=True)
class QuotaView:
    """One quota in force: its place in the tree, its numbers, and its faults.

    ``problem`` is the fault of its current settings; the last valid ones are in force then.
    ``kept_for`` is what delays its deletion.
    ``waiting`` counts its pending pods by reason; ``terms`` are those of its shares, ``loans`` all
    of its tree. ``lost`` counts the lost members of its gangs for which room may be kept.
    """

    summary: Summary
    namespace: str
    depth: int
    over: tuple[Overuse, ...] = ()
    problem: InvalidQuota | None = None
    kept_for: InvalidQuota | None = None
    waiting: Mapping[str, int] | None = None
    terms: tuple[Terms, ...] = ()
    loans: tuple[Loan, ...] = ()
    lost: int = 0

    @property
    def state(self) -> str:
        """What matters most, in one word."""
        return name_state(self.summary, self.over, self.problem)


@dataclass(frozen=True, slots=True)
class QuotaOverview:
    """All quotas, parents before children, and the faults of those that are not in force.

    ``outside`` is the usage of pods in no quota; ``total`` what each tree divides; ``loans`` the
    idle guarantees that others use.
    """

    quotas: tuple[QuotaView, ...]
    invalid: tuple[InvalidQuota, ...]
    total: Mapping[TreeId, Amounts]
    outside: Usage
    loans: tuple[Loan, ...] = ()


@dataclass(frozen=True, slots=True)
class EditResult:
    """The effect of editing a quota: it is refused, or changes shares.

    ``shares`` are (quota, resource, share before, share after) where they differ; ``over`` is
    over-use that the edit would cause.
    """

    problem: InvalidQuota | None = None
    shares: tuple[tuple[QuotaName, str, int, int], ...] = ()
    over: tuple[Overuse, ...] = ()


def view_quotas(state: ClusterState) -> QuotaOverview:
    ledger = state.open_ledger()
    book = state.quotas.catalog
    over: dict[QuotaName, list[Overuse]] = {}
    for one in find_overuse(ledger):
        over.setdefault(one.quota, []).append(one)
    solutions = state.quotas.solutions
    lost = _count_lost(state)
    views = [
        QuotaView(
            summarise(ledger, name),
            book.registry.specs[name].namespace,
            depth,
            tuple(over.get(name, ())),
            book.problems.get(key_of(book.registry.specs[name])),
            state.quotas.find_use(name) if _is_terminating(book, name) else None,
            lost=lost[name],
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
        {id_: one.inputs.total for id_, one in solutions.items()},
        state.quotas.outside(),
        tuple(loan for _, one in sorted(solutions.items()) for loan in find_loans(one)),
    )


def _count_lost(state: ClusterState) -> Counter[QuotaName]:
    """Count, per quota, the lost members for which room is kept unless its time is over."""
    found: Counter[QuotaName] = Counter()
    for gang in state.gangs.keys():  # noqa: SIM118 - it is no mapping
        lost, spec = count_to_replace(state.gangs, gang), state.gangs.spec(gang)
        if lost and spec is not None and spec.keeps_room:
            found[state.quotas.quota_of(next(iter(state.gangs.members(gang).values())))] += lost
    return found


def view_quota(state: ClusterState, name: QuotaName, scoring: Scoring) -> QuotaView | None:
    """Return one quota with the reasons of its pending pods; None if it is not in force."""
    overview = view_quotas(state)
    found = next((one for one in overview.quotas if one.summary.name == name), None)
    if found is None:
        return None
    ledger = state.open_ledger()
    solution = ledger.solution(name)
    return replace(
        found,
        waiting=Counter(_reasons(state, name, scoring)),
        terms=find_terms(solution, ledger.account(name).spec),
        loans=find_loans(solution),
    )


def simulate_gang(
    state: ClusterState,
    quota: QuotaName,
    requests: Amounts,
    pods: int,
    reclaim: ReclaimSetting = UNKNOWN,
) -> Reason:
    """Return the outcome of a gang of equal pods in a quota; adds them to the state."""
    shape = PodShape(tuple(sorted({**requests, PODS: 1}.items())))
    spec = state.quotas.catalog.written_as(quota)
    namespace = spec.namespace if spec is not None else _WHAT_IF
    key = make_gang_key(namespace, _WHAT_IF)
    settings = GangSpec(key, pods, pods, 0, group=(key,), source=GangSource.ANNOTATION)
    claim = GangClaim(key, GangSource.ANNOTATION, settings)
    newest = max((pod.created for pod in state.pods.values()), default=0.0)
    for at in range(pods):
        state.upsert_pod(
            Pod(
                uid=f"{_WHAT_IF}-{at}",
                namespace=namespace,
                name=f"{_WHAT_IF}-{at}",
                shape=shape,
                handling=Handling.RELEASE_AND_BIND,
                gang=claim,
                created=newest,
                quota=quota,
            )
        )
    made = demands(state.gangs, key)
    return _first_reason(state, made.units, Scoring(), reclaim) if isinstance(made, Ready) else made


def simulate_edit(state: ClusterState, spec: QuotaSpec) -> EditResult:
    """Return the effect of new settings of a quota; changes the state."""
    before = state.open_ledger()
    shares = {name: before.account(name).share for name in before.names()}
    was_over = {(one.quota, one.resource) for one in find_overuse(before)}
    state.upsert_quota(spec)
    after = state.open_ledger()
    problem = state.quotas.catalog.problems.get(key_of(spec))
    if problem is not None:
        return EditResult(problem)
    changed = [
        (name, key, shares.get(name, {}).get(key, 0), share)
        for name in after.names()
        for key, share in sorted(after.account(name).share.items())
        if shares.get(name, {}).get(key, 0) != share
    ]
    over = [one for one in find_overuse(after) if (one.quota, one.resource) not in was_over]
    return EditResult(None, tuple(changed), tuple(over))


def _is_terminating(book: QuotaCatalog, name: QuotaName) -> bool:
    written = book.written.get(key_of(book.registry.specs[name]))
    return written is not None and written.is_terminating


def _walk(tree: QuotaTree, name: QuotaName, depth: int) -> Iterator[tuple[QuotaName, int]]:
    for child in tree.children(name):
        yield child, depth
        yield from _walk(tree, child, depth + 1)


def _reasons(state: ClusterState, name: QuotaName, scoring: Scoring) -> Iterator[str]:
    """Yield the reason of each pending pod of a quota; each unit is planned on its own."""
    gangs = set()
    for pod in state.pods.values():
        if not pod.is_waiting or state.quotas.quota_of(pod) != name:
            continue
        if pod.gang is not None:
            gangs.add(pod.gang.key)
        elif pod.is_plannable:
            yield _first_reason(state, (unit_of(pod),), scoring).code
    for gang in sorted(gangs):
        made = demands(state.gangs, gang)
        members = [one for one in state.gangs.members(gang).values() if one.is_waiting]
        if not isinstance(made, Ready):
            yield from [made.code] * len(members)
        elif made.units:
            yield from [_first_reason(state, made.units, scoring).code] * len(members)


def _first_reason(
    state: ClusterState,
    units: tuple[Unit, ...],
    scoring: Scoring,
    reclaim: ReclaimSetting = UNKNOWN,
) -> Reason:
    state.refresh()
    outcome = plan(state.open_cycle(lambda: find_pending(state)), units, scoring)
    return first_refusal(state, units, outcome, reclaim)
