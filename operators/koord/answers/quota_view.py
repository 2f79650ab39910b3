"""Quotas for people: their numbers in order of the tree, and who uses them and waits in them.

Nothing is decided here: shares come from the solver.
"""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypedDict

from koord.answers.encoding import Encoded, encode, encode_amounts, encode_limits
from koord.answers.queue_view import QueueEntry, view_queue
from koord.answers.quota_users import QuotaUser, find_users
from koord.answers.reports import SeenCondition
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.gang.quorum import count_to_replace
from koord.core.model.device_names import CARDS
from koord.core.model.pods import Pod
from koord.core.model.reasons import Reason
from koord.core.model.text import format_time
from koord.core.model.units import Amounts, format_amount
from koord.core.quota.catalog import QuotaCatalog, key_of
from koord.core.quota.entitlement import UNKNOWN, ReclaimSetting
from koord.core.quota.model import NO_USAGE, ROOT, QuotaName, TreeId, Usage, add_up
from koord.core.quota.reclaim import Overuse, find_overuse
from koord.core.quota.share_terms import Loan, ShareTerms, find_loans, find_terms
from koord.core.quota.spec_errors import InvalidQuota
from koord.core.quota.status import QuotaCondition, Summary, name_state, summarise
from koord.core.quota.tree import QuotaTree
from koord.core.quota.usage import count_devices


@dataclass(frozen=True, slots=True)
class WaitingUnit:
    """A gang, or a pod without one, of which ``pods`` wait in a quota, and for what reason.

    ``position`` is its place in the queue, 0 if it is not complete yet. ``asks`` is what its pods
    ask for together. ``since`` is when it became complete, in seconds since the epoch.
    """

    kind: str
    """``gang`` or ``pod``."""
    name: str
    """``namespace/name``."""
    quota: QuotaName
    position: int
    pods: int
    asks: Amounts
    reason: Reason
    since: float

    @property
    def title(self) -> str:
        return f"{self.kind} {self.name}"

    def limited_to(self, keys: Container[str]) -> "WaitingUnit":
        """Return it without what it asks for of other resources."""
        return replace(self, asks={key: n for key, n in self.asks.items() if key in keys})


def find_waits(
    state: ClusterState,
    scoring: Scoring,
    reclaim: ReclaimSetting = UNKNOWN,
    quotas: Collection[QuotaName] | None = None,
) -> tuple[WaitingUnit, ...]:
    """Return what waits in these quotas, by default all, in order; it is planned together."""
    return split_by_quota(state, view_queue(state, scoring, reclaim), quotas)


def split_by_quota(
    state: ClusterState, waiting: Iterable[QueueEntry], quotas: Collection[QuotaName] | None = None
) -> tuple[WaitingUnit, ...]:
    """Return the part of what waits that counts for each of these quotas, in order."""
    return tuple(unit for waiting_unit in waiting for unit in _find_in(state, waiting_unit, quotas))


def _find_in(
    state: ClusterState, waiting: QueueEntry, quotas: Collection[QuotaName] | None
) -> Iterator[WaitingUnit]:
    cache = state.quotas
    for name in waiting.names:
        in_quota: dict[QuotaName, list[Pod]] = {}
        for pod in _pods_of(state, waiting.kind, name):
            quota = cache.quota_of(pod)
            if pod.is_waiting and (quotas is None or quota in quotas):
                in_quota.setdefault(quota, []).append(pod)
        for quota, pods in sorted(in_quota.items()):
            requests = (count_devices(dict(cache.requests_of(pod)), cache.rules) for pod in pods)
            yield WaitingUnit(
                kind="pod" if waiting.kind == "pod" else "gang",
                name=name if waiting.kind != "pod" else pods[0].title,
                quota=quota,
                position=waiting.position,
                pods=len(pods),
                asks=add_up(requests),
                reason=waiting.reason,
                since=waiting.since,
            )


def _pods_of(state: ClusterState, kind: str, name: str) -> Collection[Pod]:
    if kind != "pod":
        return state.gangs.members(name).values()
    pod = state.pod_by_key(name)
    return () if pod is None else (pod,)


class WaitingUnitDocument(TypedDict):
    """What waits in a quota; ``asks`` is what its pods ask for together."""

    position: int | None
    kind: str
    name: str | None
    quota: str | None
    asks: Mapping[str, str]
    pods: int
    reason: str
    since: str


@encode.register
def _(waiting_unit: WaitingUnit) -> WaitingUnitDocument:
    return {
        "position": waiting_unit.position or None,
        "kind": waiting_unit.kind,
        "name": encode(waiting_unit.name),
        "quota": encode(waiting_unit.quota),
        "asks": encode_amounts(waiting_unit.asks),
        "pods": waiting_unit.pods,
        "reason": waiting_unit.reason.code,
        "since": format_time(waiting_unit.since),
    }


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


def view_quota(
    state: ClusterState, name: QuotaName, waiting: Iterable[QueueEntry]
) -> QuotaView | None:
    """Return one quota with what uses it and what waits in it; None if it is not in force.

    ``waiting`` is all that waits, with the names of all.
    """
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
        waits=split_by_quota(state, waiting, family),
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


class QuotaViewDocument(TypedDict):
    """One quota: its place in the tree, its numbers, and its faults."""

    name: str
    namespace: str
    parent: str | None
    tree: str
    isParent: bool
    min: Mapping[str, str]
    max: Mapping[str, str]
    sharedWeight: Mapping[str, str]
    entitled: Mapping[str, str]
    scaledMin: Mapping[str, str]
    used: Mapping[str, str]
    request: Mapping[str, str]
    demand: Mapping[str, str]
    submitted: Mapping[str, str]
    keptForReplacements: int
    over: Mapping[str, str]
    problem: Encoded[InvalidQuota] | None
    keptFor: Encoded[InvalidQuota] | None
    waiting: Mapping[str, int]


class QuotaUserDocument(TypedDict):
    """A gang, or a pod without one, that uses a quota."""

    kind: str
    name: str | None
    quota: str | None
    used: Mapping[str, str]
    pods: int
    running: int
    state: str
    since: str


class QuotaInFullDocument(QuotaViewDocument):
    """A quota with its users, what waits in it, and how its shares came about, by resource."""

    users: list[QuotaUserDocument]
    waits: list[WaitingUnitDocument]
    terms: Mapping[str, Encoded[ShareTerms]]
    loans: list[Encoded[Loan]]


@encode.register
def _(view: QuotaView) -> QuotaViewDocument:
    summary = view.summary
    return {
        "name": summary.name,
        "namespace": view.namespace,
        "parent": encode(summary.parent),
        "tree": summary.tree,
        "isParent": summary.is_parent,
        "min": encode_amounts(summary.min),
        "max": encode_limits(summary.max),
        "sharedWeight": encode_limits(summary.weight),
        "entitled": encode_amounts(summary.share),
        "scaledMin": encode_amounts(summary.scaled_min),
        "used": encode_amounts(summary.used),
        "request": encode_amounts(summary.request),
        "demand": encode_amounts(summary.child_request),
        "submitted": encode_amounts(summary.submitted),
        "keptForReplacements": view.lost,
        "over": {
            overuse.resource: format_amount(overuse.resource, overuse.over) for overuse in view.over
        },
        "problem": encode(view.problem),
        "keptFor": encode(view.kept_for),
        "waiting": {str(code): count for code, count in view.waiting.items()},
    }


def _encode_user(user: QuotaUser, keys: Container[str]) -> QuotaUserDocument:
    return {
        "kind": user.kind,
        "name": encode(user.name),
        "quota": encode(user.quota),
        "used": encode_amounts({key: n for key, n in user.amounts.items() if key in keys}),
        "pods": user.pods,
        "running": user.running,
        "state": user.state,
        "since": format_time(user.since),
    }


class InvalidQuotaDocument(TypedDict):
    """Why the current settings of a quota are not in force."""

    quota: str
    reason: str
    message: str


@encode.register
def _(problem: InvalidQuota) -> InvalidQuotaDocument:
    return {"quota": problem.quota, "reason": problem.rule, "message": problem.describe()}


class LoanDocument(TypedDict):
    """A part of one quota's idle guarantee that another one uses."""

    lender: str | None
    borrower: str | None
    resource: str
    amount: str


@encode.register
def _(loan: Loan) -> LoanDocument:
    return {
        "lender": encode(loan.lender),
        "borrower": encode(loan.borrower),
        "resource": loan.resource,
        "amount": format_amount(loan.resource, loan.amount),
    }


class ShareTermsDocument(TypedDict):
    """How the share of one resource came about; amounts but for the weights."""

    parentShare: str
    parentOwnPods: str
    demand: str
    wants: str
    min: str
    scaledMin: str
    guaranteed: str
    startsWith: str
    leftOver: str
    borrows: str
    entitled: str
    lends: bool
    weight: int
    weights: int


@encode.register
def _(terms: ShareTerms) -> ShareTermsDocument:
    def write(amount: int) -> str:
        return format_amount(terms.resource, amount)

    return {
        "parentShare": write(terms.total),
        "parentOwnPods": write(terms.own),
        "demand": write(terms.demand),
        "wants": write(terms.want),
        "min": write(terms.minimum),
        "scaledMin": write(terms.scaled),
        "guaranteed": write(terms.floor),
        "startsWith": write(terms.starts),
        "leftOver": write(terms.left),
        "borrows": write(terms.borrowed),
        "entitled": write(terms.share),
        "lends": terms.lends,
        "weight": terms.weight,
        "weights": terms.weights,
    }


class QuotaOverviewDocument(TypedDict):
    """All quotas, the faults of those that are not in force, and what each tree divides."""

    quotas: list[Encoded[QuotaView]]
    invalid: list[Encoded[InvalidQuota]]
    total: Mapping[str, Mapping[str, str]]
    loans: list[Encoded[Loan]]


@encode.register
def _(overview: QuotaOverview) -> QuotaOverviewDocument:
    return {
        "quotas": encode(overview.quotas),
        "invalid": encode(overview.invalid),
        "total": {id_: encode_amounts(total) for id_, total in overview.total.items()},
        "loans": encode(overview.loans),
    }


def encode_in_full(view: QuotaView) -> QuotaInFullDocument:
    """Return a quota with all about it; of the resources that its max names."""
    loans = [loan for loan in view.loans if view.summary.name in {loan.lender, loan.borrower}]
    keys = view.summary.max
    document: QuotaViewDocument = encode(view)
    return {
        **document,
        "users": [_encode_user(user, keys) for user in view.users],
        "waits": [encode(waiting_unit.limited_to(keys)) for waiting_unit in view.waits],
        "terms": {terms.resource: encode(terms) for terms in view.terms},
        "loans": encode(loans),
    }
