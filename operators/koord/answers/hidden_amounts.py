"""What an asker may learn of the amounts of others, where an administrator hides those.

Sums over everybody are rounded down to one significant digit, and nobody learns a position. Units
of others are left out: the number of those before one's own would be its position, and priorities
and times would tell it, too. What is the asker's own stays exact, and so does what a quota says,
which the API server would tell her, too. Knows nothing of why amounts are hidden.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from koord.answers.audit_report import AuditReport
from koord.answers.explanation import Explanation
from koord.answers.fragmentation import Fragmentation, ModelFragmentation
from koord.answers.overview import Overview
from koord.answers.queue_view import QueueEntry
from koord.answers.quota_view import QuotaView
from koord.answers.redaction import HiddenName, Sight
from koord.answers.standing import QueueStanding
from koord.answers.what_if import WhatIfAnswer
from koord.core.usage.book import BookSum, LossKey, OwnerKey, UsageBook

Owned = TypeVar("Owned", OwnerKey, LossKey)


def round_down(amount: int) -> int:
    """Return an amount with one significant digit, not above what it is."""
    digits = 10 ** (len(str(abs(amount))) - 1)
    return amount // digits * digits if amount > 0 else amount


def _round_fields(value: object, *names: str) -> dict[str, Any]:
    return {name: round_down(getattr(value, name)) for name in names}


def _round_all(amounts: Mapping[str, int]) -> dict[str, int]:
    return {key: round_down(amount) for key, amount in amounts.items()}


def hide_in_queue(entries: Iterable[QueueEntry], sight: Sight) -> tuple[QueueEntry, ...]:
    """Return what waits, as somebody sees it: of all of it, or of her own."""
    if sight.amounts:
        return tuple(entries)
    own = (entry for entry in entries if any(map(sight.sees, entry.namespaces)))
    return tuple(map(_hide_place, own))


def _hide_place(entry: QueueEntry) -> QueueEntry:
    standing = entry.standing
    return replace(
        entry,
        position=0,
        gpus_ahead=round_down(entry.gpus_ahead),
        standing=None if standing is None else _hide_standing(standing),
    )


def _hide_standing(standing: QueueStanding) -> QueueStanding:
    return replace(
        standing,
        position=0,
        **_round_fields(standing, "waiting", "ahead", "gpus_ahead"),
        waits_for=tuple(end for end in standing.waits_for if not _is_hidden(end.name)),
        reported="",  # it names the position
    )


def hide_in_overview(overview: Overview, sight: Sight) -> Overview:
    """Return sums of all; what waits in it is what ``hide_in_queue`` has left."""
    if sight.amounts:
        return overview
    gpus = overview.gpus
    parts = [part.name for part in fields(gpus) if part.name != "total"]
    rounded = replace(gpus, **_round_fields(gpus, *parts))
    return replace(overview, gpus=rounded, sick=round_down(overview.sick))


def hide_in_fragmentation(value: Fragmentation, sight: Sight) -> Fragmentation:
    if sight.amounts:
        return value
    return Fragmentation(tuple(map(_round_model, value.models)))


def _round_model(model: ModelFragmentation) -> ModelFragmentation:
    return replace(
        model,
        **_round_fields(model, "used", "held", "free", "broken", "down", "shared"),
        stranded=_round_all(model.stranded),
        free_by_node={free: round_down(nodes) for free, nodes in model.free_by_node.items()},
        sizes=tuple(
            replace(size, placeable=round_down(size.placeable), ideal=round_down(size.ideal))
            for size in model.sizes
        ),
    )


def hide_in_explanation(answer: Explanation, sight: Sight) -> Explanation:
    """Return it without what is free on each node and in each domain of the network."""
    return answer if sight.amounts else replace(answer, offers=(), network=None)


def hide_in_quota(quota: QuotaView, sight: Sight) -> QuotaView:
    """Return a quota of which names are hidden already, without units of others and loans."""
    if sight.amounts:
        return quota
    return replace(
        quota,
        loans=tuple(
            loan
            for loan in quota.loans
            if not (_is_hidden(loan.lender) or _is_hidden(loan.borrower))
        ),
        users=tuple(user for user in quota.users if not _is_hidden(user.name)),
        waits=tuple(replace(unit, position=0) for unit in quota.waits if not _is_hidden(unit.name)),
    )


def hide_in_what_if(answer: WhatIfAnswer, sight: Sight) -> WhatIfAnswer:
    """Return what becomes of the asker's own units, of an answer of which names are hidden."""
    if sight.amounts:
        return answer
    return replace(
        answer,
        units=tuple(change for change in answer.units if not _is_hidden(change.ref.name)),
        shares=tuple(share for share in answer.shares if not _is_hidden(share.quota)),
        evicted=tuple(unit for unit in answer.evicted if not _is_hidden(unit.ref)),
        order=tuple(ref for ref in answer.order if not _is_hidden(ref.name)),
    )


def hide_in_audit(report: AuditReport, sight: Sight) -> AuditReport:
    """Return a report of one namespace, of which names are hidden, without who has blocked it."""
    if sight.amounts:
        return report
    units = tuple(unit for unit in report.blockers.units if not _is_hidden(unit.unit))
    return replace(report, blockers=replace(report.blockers, units=units))


def hide_in_usage(book: UsageBook, sight: Sight) -> UsageBook:
    """Return a book of which names are hidden; what is left of others has one digit."""
    if sight.amounts:
        return book
    return replace(
        book,
        sums={
            key: _round_sum(amount) if _is_hidden(key.namespace) else amount
            for key, amount in book.sums.items()
        },
        owners=_round_others(book.owners),
        losses=_round_others(book.losses),
    )


def _round_others(amounts: Mapping[Owned, int]) -> Counter[Owned]:
    """Return the amounts of owners, those of hidden ones with one digit."""
    return Counter(
        {
            key: round_down(amount) if _is_hidden(key.owner) else amount
            for key, amount in amounts.items()
        }
    )


def _round_sum(amount: BookSum) -> BookSum:
    amounts = Counter(_round_all(amount.amounts))
    return BookSum(round_down(amount.held), round_down(amount.estimated), amounts)


def _is_hidden(name: str) -> bool:
    return isinstance(name, HiddenName)
