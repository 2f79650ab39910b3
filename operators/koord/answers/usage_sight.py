"""What an asker may learn of usage by name: that of her own namespaces, and quotas that she sees.

All others are one row, so that sums stay what they are. Knows nothing of where a book comes from.
"""

from collections import Counter
from dataclasses import replace
from typing import Final

from koord.answers.redaction import HiddenName, NameKind, Sight
from koord.core.usage.book import BookKey, BookSum, LossKey, OwnerKey, UsageBook

OTHERS: Final = HiddenName("(others)")
"""Stands for the names that are not to be seen; no object has such a name."""


def hide_others(book: UsageBook, sight: Sight) -> UsageBook:
    """Return what an asker may see of a book; the same book for whoever may see everything."""
    if sight.namespaces is None and sight.quotas:
        return book
    names = _Names(sight)
    sums: dict[BookKey, BookSum] = {}
    for key, amount in book.sums.items():
        sums.setdefault(names.of_sum(key), BookSum()).add(amount)
    owners, losses = Counter[OwnerKey](), Counter[LossKey]()
    for owner, held in book.owners.items():
        owners[names.of_owner(owner)] += held
    for loss, lost in book.losses.items():
        losses[names.of_loss(loss)] += lost
    adjusted = Counter[str]()
    for quota, held in book.adjusted.items():
        adjusted[names.quota(quota)] += held
    return replace(
        book,
        sums=sums,
        owners=owners,
        losses=losses,
        adjusted=adjusted,
        quotas={name: time for name, time in book.quotas.items() if sight.sees_quota(name)},
        above={
            name: parent if sight.sees_quota(parent) else ""
            for name, parent in book.above.items()
            if sight.sees_quota(name)
        },
    )


class _Names:
    """The names of a book, as an asker sees them."""

    def __init__(self, sight: Sight) -> None:
        self._sight = sight

    def quota(self, name: str) -> str:
        return name if not name or self._sight.sees_quota(name) else OTHERS

    def of_sum(self, key: BookKey) -> BookKey:
        quota = self.quota(key.quota)
        if self._sight.sees(key.namespace):
            return key._replace(quota=quota)
        return key._replace(quota=quota, namespace=OTHERS, user=OTHERS)

    def of_owner(self, key: OwnerKey) -> OwnerKey:
        is_seen = self._sight.sees(key.owner.partition("/")[0])
        return key._replace(quota=self.quota(key.quota), owner=key.owner if is_seen else OTHERS)

    def of_loss(self, key: LossKey) -> LossKey:
        is_seen = self._sight.sees(key.namespace)
        return key._replace(
            quota=self.quota(key.quota),
            namespace=key.namespace if is_seen else OTHERS,
            owner=key.owner if is_seen else OTHERS,
            by=self._sight.hide(NameKind.UNIT, key.by),
        )
