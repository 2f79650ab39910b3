"""Quotas for people: their numbers in order of the tree, and who uses them and waits in them.

Nothing is decided here: shares come from the solver.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from koord.answers.quota_users import QuotaUser, find_users
from koord.answers.quota_waits import WaitingUnit, find_waits
from koord.answers.reports import SeenCondition
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.gang.quorum import count_to_replace
from koord.core.model.device_names import CARDS
from koord.core.model.units import Amounts
from koord.core.quota.catalog import QuotaCatalog, key_of
from koord.core.quota.model import NO_USAGE, ROOT, QuotaName, TreeId, Usage
from koord.core.quota.reclaim import Overuse, find_overuse
from koord.core.quota.share_terms import Loan, ShareTerms, find_loans, find_terms
from koord.core.quota.spec_errors import InvalidQuota
from koord.core.quota.status import QuotaCondition, Summary, name_state, summarise
from koord.core.quota.tree import QuotaTree


@dataclass(frozen=True, slots=True)
class QuotaView:
    """One quota in force: its place in the tree, its numbers, and its faults.

    ``problem`` is the fault of its current settings; the last valid ones are in force then.
    ``kept_for`` is what delays its deletion.
    ``terms`` are those of its shares, ``loans`` all of its tree. ``lost`` counts the lost members
    of its gangs for which room may be kept. ``users`` use it or a quota below, and ``waits`` wait
    there.
    """

    summary: Summary
    namespace: str
    depth: int
    over: tuple[Overuse, ...] = ()
    problem: InvalidQuota | None = None
    kept_for: InvalidQuota | None = None
    terms: tuple[ShareTerms, ...] = ()
    loans: tuple[Loan, ...] = ()
    lost: int = 0
    users: tuple[QuotaUser, ...] = ()
    waits: tuple[WaitingUnit, ...] = ()

    @property
    def waiting(self) -> Mapping[str, int]:
        """How many pods wait, by reason."""
        counts: Counter[str] = Counter()
        for waiting_unit in self.waits:
            counts[waiting_unit.reason.code] += waiting_unit.pods
        return counts

    @property
    def scarcest(self) -> str:
        """The resource to show: that of devices, else the one that is used most."""
        used, most = self.summary.used, self.summary.max
        cards = [key for key in CARDS if key in most]
        shares = {key: used.get(key, 0) / (most[key] or 1) for key in sorted(most)}
        return cards[0] if cards else max(shares, key=lambda key: shares[key], default="")

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


def view_quotas(state: ClusterState) -> QuotaOverview:
    ledger = state.open_ledger()
    book = state.quotas.catalog
    over: dict[QuotaName, list[Overuse]] = {}
    for overuse in find_overuse(ledger):
        over.setdefault(overuse.quota, []).append(overuse)
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
        {id_: solution.inputs.total for id_, solution in solutions.items()},
        state.quotas.outside(),
        tuple(loan for _, solution in sorted(solutions.items()) for loan in find_loans(solution)),
    )


def _count_lost(state: ClusterState) -> Counter[QuotaName]:
    """Count, per quota, the lost members for which room is kept unless its time is over."""
    lost_members: Counter[QuotaName] = Counter()
    for gang in state.gangs.keys():  # noqa: SIM118 - it is no mapping
        lost, spec = count_to_replace(state.gangs, gang), state.gangs.spec(gang)
        if lost and spec is not None and spec.keeps_room:
            lost_members[state.quotas.quota_of(next(iter(state.gangs.members(gang).values())))] += (
                lost
            )
    return lost_members


def view_quota(state: ClusterState, name: QuotaName, scoring: Scoring) -> QuotaView | None:
    """Return one quota with what uses it and what waits in it; None if it is not in force."""
    overview = view_quotas(state)
    quota_view = next((quota for quota in overview.quotas if quota.summary.name == name), None)
    if quota_view is None:
        return None
    ledger = state.open_ledger()
    solution = ledger.solution(name)
    family = state.quotas.catalog.registry.family(name)
    key, users = quota_view.scarcest, find_users(state, family)
    return replace(
        quota_view,
        users=tuple(
            sorted(
                users, key=lambda quota_user: (-quota_user.amounts.get(key, 0), quota_user.title)
            )
        ),
        waits=find_waits(state, scoring, quotas=family),
        terms=find_terms(solution, ledger.account(name).spec),
        loans=find_loans(solution),
    )


def _is_terminating(book: QuotaCatalog, name: QuotaName) -> bool:
    written = book.written.get(key_of(book.registry.specs[name]))
    return written is not None and written.is_terminating


def _walk(tree: QuotaTree, name: QuotaName, depth: int) -> Iterator[tuple[QuotaName, int]]:
    for child in tree.children(name):
        yield child, depth
        yield from _walk(tree, child, depth + 1)


_CALM: Final = frozenset({QuotaCondition.READY, "Accepted", "Enforced"})
"""Conditions that only matter if they do not hold."""


@dataclass(frozen=True, slots=True)
class ReportedQuota:
    """A quota, its conditions by type, and the namespaces whose pods count for it."""

    view: QuotaView
    conditions: Mapping[str, SeenCondition]
    namespaces: tuple[str, ...] = ()


def make_overview(quotas: tuple[ReportedQuota, ...]) -> QuotaOverview:
    return QuotaOverview(tuple(quota.view for quota in quotas), (), {}, NO_USAGE)


def list_remarks(quota: ReportedQuota) -> Iterator[str]:
    """Yield what the conditions say beyond that all is well."""
    for kind, condition in sorted(quota.conditions.items()):
        if (condition.status == "True") is not (kind in _CALM) and condition.message:
            yield f"{kind}: {condition.message}"
