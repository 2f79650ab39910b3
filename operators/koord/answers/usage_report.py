"""The report of a period: whether a quota got its share, who used what, and what was lost.

A value made of a book; sums are rounded, and priced, when they are shown. Knows no format.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from typing import Final, TypedDict, TypeVar

from koord.answers.encoding import encode
from koord.answers.redaction import HiddenName
from koord.core.model.text import format_time
from koord.core.usage.book import BookKey, LossKey, UsageBook, path_of
from koord.core.usage.cluster_time import GpuState
from koord.core.usage.quota_time import QuotaTime
from koord.core.usage.segments import MS_PER_SECOND, Window
from koord.core.usage.tables import MILLI_GPU_MS_PER_HOUR, format_hours

MOST_LINES: Final = 20
"""Jobs that are named; all others are one line."""
MOST_USERS: Final = 500
"""Users that are named: whoever labels pods may name any number."""
_CENT: Final = Decimal("0.01")

Row = TypeVar("Row", bound=Hashable)


@dataclass(frozen=True, slots=True)
class AmountLine:
    """What was held under a name, and what it costs; None: nobody has given prices."""

    name: str
    held: int
    cost: Decimal | None = None


@dataclass(frozen=True, slots=True)
class QuotaLine:
    """A quota: what its own pods held, and its amounts with those below it, as far as known."""

    quota: str
    depth: int
    held: int
    time: QuotaTime | None
    cost: Decimal | None = None


@dataclass(frozen=True, slots=True)
class LossLine:
    """Work that was lost: why, how that is known, for whom, and how much."""

    cause: str
    basis: str
    by: str
    lost: int


@dataclass(frozen=True, slots=True)
class UsageReport:
    """What became of GPUs in a period; of one quota and those below it, if ``quota`` is given.

    ``unseen``: milliseconds in which nobody watched; None if nobody wrote it down. ``unpriced``:
    of ``held``, as far as no price is given for the model.
    """

    window: Window
    quota: str
    held: int
    cost: Decimal | None
    quotas: tuple[QuotaLine, ...]
    namespaces: tuple[AmountLine, ...]
    users: tuple[AmountLine, ...]
    other_users: int
    owners: tuple[AmountLine, ...]
    other_owners: int
    models: tuple[AmountLine, ...]
    cluster: Mapping[str, Mapping[GpuState, int]]
    losses: tuple[LossLine, ...]
    losers: tuple[AmountLine, ...]
    estimated: int
    uncertain: int
    unseen: int | None
    adjusted: int
    unpriced: int


@dataclass(frozen=True, slots=True)
class _Prices:
    """Prices of an hour of a GPU, by model."""

    of: Mapping[str, Decimal]

    def cost(self, by_model: Mapping[str, int]) -> Decimal | None:
        """Return what it costs, rounded half to even to hundredths."""
        if not self.of:
            return None
        with localcontext() as context:
            context.prec = 60
            total = sum(
                (
                    Decimal(held) * self.of[model]
                    for model, held in by_model.items()
                    if model in self.of
                ),
                Decimal(0),
            )
            return (total / MILLI_GPU_MS_PER_HOUR).quantize(_CENT, ROUND_HALF_EVEN)


def make_report(
    book: UsageBook, quota: str = "", prices: Mapping[str, Decimal] | None = None
) -> UsageReport:
    """Return the report of a book. ``prices`` are those of an hour of a GPU, by model."""
    priced = _Prices(prices or {})
    wanted = None if not quota else find_below(quota, book.above, _quotas_of(book))
    keys = [key for key in book.sums if wanted is None or key.quota in wanted]
    owners = [key for key in book.owners if wanted is None or key.quota in wanted]
    losses = [key for key in book.losses if wanted is None or key.quota in wanted]
    by_model = Counter[str]()
    for key in keys:
        by_model[key.model] += book.sums[key].held
    users = _lines(book, [key for key in keys if key.user], lambda key: key.user, priced)
    jobs = _list_lines(_group(owners, lambda key: key.owner, lambda key: book.owners[key]), priced)
    return UsageReport(
        window=book.window,
        quota=quota,
        held=by_model.total(),
        cost=priced.cost(by_model),
        quotas=_list_quotas(book, wanted, priced),
        namespaces=_lines(book, keys, lambda key: key.namespace, priced),
        users=users[:MOST_USERS],
        other_users=sum(line.held for line in users[MOST_USERS:]),
        owners=jobs[:MOST_LINES],
        other_owners=sum(line.held for line in jobs[MOST_LINES:]),
        models=_lines(book, keys, lambda key: key.model, priced),
        cluster={} if quota else book.cluster,
        losses=_list_losses(book, losses),
        losers=_list_losers(book, losses),
        estimated=sum(book.sums[key].estimated for key in keys),
        uncertain=book.uncertain,
        unseen=book.unseen,
        adjusted=sum(n for name, n in book.adjusted.items() if wanted is None or name in wanted),
        unpriced=sum(held for model, held in by_model.items() if model not in priced.of),
    )


def _quotas_of(book: UsageBook) -> set[str]:
    return {key.quota for key in book.sums} | set(book.quotas) | set(book.above)


def find_below(quota: str, above: Mapping[str, str], names: Iterable[str]) -> frozenset[str]:
    """Return a quota and those below it."""
    return frozenset(name for name in names if quota in path_of(name, above)) | {quota}


def _list_quotas(
    book: UsageBook, wanted: frozenset[str] | None, prices: _Prices
) -> tuple[QuotaLine, ...]:
    """Return the quotas that held something or were guaranteed it, in the order of their tree."""
    held: dict[str, Counter[str]] = {name: Counter() for name in book.quotas}
    for key, amount in book.sums.items():
        held.setdefault(key.quota, Counter())[key.model] += amount.held
    paths = {name: path_of(name, book.above) for name in held if wanted is None or name in wanted}
    least = min(map(len, paths.values()), default=1)
    return tuple(
        QuotaLine(
            name,
            len(paths[name]) - least,
            held[name].total(),
            book.quotas.get(name),
            prices.cost(held[name]),
        )
        for name in sorted(paths, key=lambda name: (not name, paths[name]))
    )


def _group(
    keys: Iterable[Row], name_of: Callable[[Row], str], held_of: Callable[[Row], int]
) -> dict[str, Counter[str]]:
    """Sum up by name and model; each key has a model."""
    groups: dict[str, Counter[str]] = {}
    for key in keys:
        model: str = getattr(key, "model", "")
        groups.setdefault(name_of(key), Counter())[model] += held_of(key)
    return groups


def _lines(
    book: UsageBook, keys: Iterable[BookKey], name_of: Callable[[BookKey], str], prices: _Prices
) -> tuple[AmountLine, ...]:
    return _list_lines(_group(keys, name_of, lambda key: book.sums[key].held), prices)


def _list_lines(groups: Mapping[str, Counter[str]], prices: _Prices) -> tuple[AmountLine, ...]:
    lines = (
        AmountLine(name, by_model.total(), prices.cost(by_model))
        for name, by_model in groups.items()
    )
    # Pods without GPUs have nothing to say here.
    return tuple(
        sorted((line for line in lines if line.held), key=lambda line: (-line.held, line.name))
    )


def _list_losses(book: UsageBook, keys: Iterable[LossKey]) -> tuple[LossLine, ...]:
    lost = Counter[tuple[str, str, str]]()
    for key in keys:
        lost[key.cause, key.basis, key.by] += book.losses[key]
    lines = (LossLine(*names, amount) for names, amount in lost.items() if amount)
    return tuple(sorted(lines, key=lambda line: (-line.lost, line.cause, line.by)))[:MOST_LINES]


def _list_losers(book: UsageBook, keys: Iterable[LossKey]) -> tuple[AmountLine, ...]:
    lost = Counter[str]()
    for key in keys:
        lost[key.owner] += book.losses[key]
    lines = (AmountLine(name, amount) for name, amount in lost.items() if amount)
    return tuple(sorted(lines, key=lambda line: (-line.held, line.name)))[:MOST_LINES]


class AmountDocument(TypedDict):
    """What was held: GPU time, hours of it, and what that costs."""

    held: int
    hours: str
    cost: str | None


class QuotaLineDocument(AmountDocument):
    """A quota: what its own pods held, and its GPU time with those below it, as far as known."""

    quota: str | None
    depth: int
    used: int | None
    guaranteed: int | None
    withinMin: int | None
    borrowed: int | None
    owed: int | None
    idleMin: int | None
    lent: int | None


class NamespaceLineDocument(AmountDocument):
    """What the pods of a namespace held."""

    namespace: str | None


class UserLineDocument(AmountDocument):
    """What the pods of a user held."""

    user: str | None


class OwnerLineDocument(AmountDocument):
    """What the pods of a job held."""

    owner: str | None


class ModelLineDocument(AmountDocument):
    """What was held of GPUs of a model."""

    model: str | None


class ClusterLineDocument(TypedDict):
    """What the GPUs of a model were, in GPU time."""

    model: str
    used: int
    reserved: int
    idle: int
    unusable: int
    broken: int
    down: int


class LossLineDocument(TypedDict):
    """Work that was lost: why, how that is known, and for whom."""

    cause: str
    basis: str
    by: str | None
    lost: int
    hours: str


class LoserDocument(TypedDict):
    """The job that lost work."""

    owner: str | None
    lost: int
    hours: str


UsageReportDocument = TypedDict(
    "UsageReportDocument",
    {
        "from": str,
        "to": str,
        "quota": str | None,
        "unit": str,
        "held": int,
        "hours": str,
        "cost": str | None,
        "quotas": list[QuotaLineDocument],
        "namespaces": list[NamespaceLineDocument],
        "users": list[UserLineDocument],
        "otherUsers": int,
        "owners": list[OwnerLineDocument],
        "otherOwners": int,
        "models": list[ModelLineDocument],
        "cluster": list[ClusterLineDocument],
        "losses": list[LossLineDocument],
        "losers": list[LoserDocument],
        "estimated": int,
        "uncertainMs": int,
        "unseenMs": int | None,
        "adjusted": int,
    },
)


@encode.register
def _(report: UsageReport) -> UsageReportDocument:
    start, end = (
        format_time(ms / MS_PER_SECOND) for ms in (report.window.start, report.window.end)
    )
    return {
        "from": start,
        "to": end,
        "quota": report.quota or None,
        "unit": "milliGpuMs",
        "held": report.held,
        "hours": format_hours(report.held),
        "cost": _encode_cost(report.cost),
        "quotas": [_encode_quota(line) for line in report.quotas],
        "namespaces": [
            {"namespace": _encode_name(line.name), **_encode_amount(line)}
            for line in report.namespaces
        ],
        "users": [
            {"user": _encode_name(line.name), **_encode_amount(line)} for line in report.users
        ],
        "otherUsers": report.other_users,
        "owners": [
            {"owner": _encode_name(line.name), **_encode_amount(line)} for line in report.owners
        ],
        "otherOwners": report.other_owners,
        "models": [
            {"model": _encode_name(line.name), **_encode_amount(line)} for line in report.models
        ],
        "cluster": [
            _encode_cluster(model, states) for model, states in sorted(report.cluster.items())
        ],
        "losses": [
            {
                "cause": line.cause,
                "basis": line.basis,
                "by": _encode_name(line.by) or None,
                "lost": line.lost,
                "hours": format_hours(line.lost),
            }
            for line in report.losses
        ],
        "losers": [
            {"owner": _encode_name(line.name), "lost": line.held, "hours": format_hours(line.held)}
            for line in report.losers
        ],
        "estimated": report.estimated,
        "uncertainMs": report.uncertain,
        "unseenMs": report.unseen,
        "adjusted": report.adjusted,
    }


def _encode_name(name: str) -> str | None:
    return None if isinstance(name, HiddenName) else name


def _encode_cost(cost: Decimal | None) -> str | None:
    return None if cost is None else str(cost)


def _encode_amount(line: AmountLine | QuotaLine) -> AmountDocument:
    return {"held": line.held, "hours": format_hours(line.held), "cost": _encode_cost(line.cost)}


def _encode_cluster(model: str, states: Mapping[GpuState, int]) -> ClusterLineDocument:
    return {
        "model": model,
        "used": states.get(GpuState.USED, 0),
        "reserved": states.get(GpuState.RESERVED, 0),
        "idle": states.get(GpuState.IDLE, 0),
        "unusable": states.get(GpuState.UNUSABLE, 0),
        "broken": states.get(GpuState.BROKEN, 0),
        "down": states.get(GpuState.DOWN, 0),
    }


def _encode_quota(line: QuotaLine) -> QuotaLineDocument:
    time = line.time
    return {
        "quota": _encode_name(line.quota),
        **_encode_amount(line),
        "depth": line.depth,
        "used": None if time is None else time.used,
        "guaranteed": None if time is None else time.guaranteed,
        "withinMin": None if time is None else time.within_min,
        "borrowed": None if time is None else time.borrowed,
        "owed": None if time is None else time.owed,
        "idleMin": None if time is None else time.idle_min,
        "lent": None if time is None else time.lent,
    }
