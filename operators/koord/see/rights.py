"""What a user may see by name: the rights that the API server says she has to the real kinds.

Who may list pods of all namespaces is asked first, with one review. Otherwise it is asked for each
namespace that matters, a few at a time: those that a question names before all others, and of very
many the rest with later questions. Knows no answer and no HTTP.
"""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from koord.answers.redaction import Sight
from koord.runtime.reviews import (
    RENEWED_AFTER,
    RIGHT_SECONDS,
    AccessReviews,
    Kept,
    NoReview,
    ResourceRight,
    TokenHolder,
)
from koord.see.buckets import Buckets

PODS: Final = ("", "pods")
QUOTAS: Final = ("scheduling.sigs.k8s.io", "elasticquotas")
NODES: Final = ("", "nodes")
DEVICES: Final = ("scheduling.koordinator.sh", "devices")
RESERVATIONS: Final = ("scheduling.koordinator.sh", "reservations")
_KINDS: Final = (PODS, QUOTAS, NODES, DEVICES, RESERVATIONS)
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
MOST_AT_ONCE: Final = 200
"""Namespaces that are asked about for one question."""
NEW_PER_SECOND: Final = 100
NEW_BURST: Final = 1000
"""Namespaces that nobody has named, of which it is asked for one user or all of a crowd: with
thousands of them, and of users, reviews of one tenant would keep others waiting."""
MOST_SIGHTS: Final = 1024
RENEWED_BEFORE: Final = RIGHT_SECONDS * (1 - RENEWED_AFTER) / 2
"""So long before a sight ends its rights are asked about anew. By then those that end first are
due, and those that are not due outlast it."""


def is_name(text: str) -> bool:
    """Whether an object can have this name; of no other the API server is asked."""
    return _NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class UserSight:
    """What a user may see, until when that counts, and of which namespaces it was asked."""

    sight: Sight
    until: float
    namespaces: frozenset[str]
    is_complete: bool = True
    """Whether it was asked of all namespaces that matter."""
    is_renewed: bool = False
    """Whether its rights were asked about anew before it ends."""


class UserRights:
    """Finds the sights of users."""

    def __init__(
        self,
        reviews: AccessReviews,
        clock: Callable[[], float] = time.monotonic,
        *,
        hides_amounts: bool = False,
    ) -> None:
        """With ``hides_amounts`` those of others are hidden from who may not list all pods."""
        self._reviews = reviews
        self._hides_amounts = hides_amounts
        self._clock = clock
        self._kept: OrderedDict[bytes, UserSight] = OrderedDict()
        self._new = Buckets(NEW_PER_SECOND, NEW_BURST, clock)
        self._renewals: set[asyncio.Task[None]] = set()

    async def find(
        self, user: TokenHolder, namespaces: Iterable[str], first: Iterable[str] = ()
    ) -> UserSight:
        """Return what a user may see of namespaces; of those in ``first`` it is always asked.

        Raises NoReview.
        """
        wanted, needed = frozenset(namespaces), frozenset(filter(is_name, first))
        kept = self._kept.get(user.digest)
        if kept is not None and self._clock() < kept.until:
            is_enough = kept.is_complete and wanted | needed <= kept.namespaces
            if kept.sight.namespaces is None or is_enough:
                self._renew(user, kept)
                return kept
        sight_now = await self._ask(user, wanted, needed)
        self._kept[user.digest] = sight_now
        self._kept.move_to_end(user.digest)
        if len(self._kept) > MOST_SIGHTS:
            self._kept.popitem(last=False)
        return sight_now

    def _renew(self, user: TokenHolder, kept: UserSight) -> None:
        """Have the rights of a sight that ends soon asked about anew, once."""
        if kept.is_renewed or self._clock() < kept.until - RENEWED_BEFORE:
            return
        self._kept[user.digest] = replace(kept, is_renewed=True)
        task = asyncio.ensure_future(self._ask_ahead(user, kept.namespaces))
        self._renewals.add(task)
        task.add_done_callback(self._renewals.discard)

    async def _ask_ahead(self, user: TokenHolder, namespaces: frozenset[str]) -> None:
        """Have the reviews of rights renewed that are kept; who asks next has what they say."""
        with suppress(NoReview):
            await self._ask(user, namespaces, frozenset())

    async def _ask(
        self, user: TokenHolder, wanted: frozenset[str], needed: frozenset[str]
    ) -> UserSight:
        answers = await asyncio.gather(*(self._may(user, kind) for kind in _KINDS))
        pods, quotas, nodes, devices, reservations = answers
        until = min(each.until for each in answers)
        whole = Sight(nodes=nodes.value and devices.value, reservations=reservations.value)
        if pods.value and quotas.value:
            return UserSight(whole, until, wanted)
        chosen = self._choose(user, wanted, needed)
        seen = frozenset(chosen)
        if not pods.value:
            until, seen = await self._filter(user, PODS, chosen, until)
        with_quotas: frozenset[str] = frozenset()
        if not quotas.value:
            until, with_quotas = await self._filter(user, QUOTAS, sorted(seen), until)
        is_complete = wanted <= frozenset(chosen)
        sight = replace(
            whole,
            namespaces=None if pods.value else seen,
            quotas=quotas.value,
            quota_namespaces=with_quotas,
            amounts=pods.value or not self._hides_amounts,
            is_complete=is_complete,
        )
        return UserSight(sight, until, frozenset(chosen), is_complete)

    def _choose(
        self, user: TokenHolder, wanted: frozenset[str], needed: frozenset[str]
    ) -> list[str]:
        """Return the namespaces to ask about: what a question names, what is known, the rest."""
        further = sorted(wanted - needed)
        before = [name for name in further if self._reviews.get(user, _right(PODS, name))]
        new = sorted(set(further) - set(before))[: max(0, MOST_AT_ONCE - len(needed))]
        whose = user.digest if user.crowd is None else user.crowd
        return sorted({*needed, *before, *new[: self._new.take_up_to(whose, len(new))]})

    async def _filter(
        self, user: TokenHolder, kind: tuple[str, str], names: Iterable[str], until: float
    ) -> tuple[float, frozenset[str]]:
        """Return the namespaces whose objects a user may list, and until when that counts."""
        listed = list(names)
        answers = await asyncio.gather(*(self._may(user, kind, name) for name in listed))
        seen = (name for name, each in zip(listed, answers, strict=True) if each.value)
        return min([until, *(each.until for each in answers)]), frozenset(seen)

    async def _may(
        self, user: TokenHolder, kind: tuple[str, str], namespace: str = ""
    ) -> Kept[bool]:
        return await self._reviews.may(user, _right(kind, namespace))


def _right(kind: tuple[str, str], namespace: str) -> ResourceRight:
    return ResourceRight("list", *kind, namespace)
