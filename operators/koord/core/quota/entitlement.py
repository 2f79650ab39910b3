"""What a unit is told whose quota is entitled to what it lacks: who uses it, and until when.

A value with its texts. ``koord.answers.reason_context``, which knows gangs and nodes, finds it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from koord.core.model.patience import FOREVER, Hanging, Patience, tell_hanging
from koord.core.model.reasons import ReasonContext
from koord.core.model.text import cut, format_time, named, plural
from koord.core.model.units import format_amount
from koord.core.quota.model import QuotaName


@dataclass(frozen=True, slots=True)
class ReclaimSetting:
    """Whether over-use is reclaimed ``after`` how many seconds (None: never), if that ``is_known``.

    ``patience`` says how long evicted pods are waited for, ``budget_grace`` how long disruption
    budgets protect pods then (None: that is not known). ``since`` says since when quotas are over,
    and ``now`` is the present, in seconds since the epoch: both for people who ask, not for
    conditions, which would change every second.
    """

    is_known: bool = False
    after: float | None = None
    since: Mapping[QuotaName, float] = field(default_factory=dict)
    now: float = 0.0
    budget_grace: float | None = None
    patience: Patience = FOREVER

    def due_in(self, quota: QuotaName) -> float | None:
        """Return the seconds until reclaim acts on a quota; None if that is not known."""
        since = self.since.get(quota)
        if since is None or self.after is None:
            return None
        return max(0.0, since + self.after - self.now)


UNKNOWN: Final = ReclaimSetting()
_NO_ROOM: Final = "What can be reclaimed does not make room for it."


def tell_reclaim(after: float | None, due_in: float | None) -> str:
    """Say whether and when over-use is reclaimed, where that is known."""
    if after is None:
        return "Reclaim is off (elasticQuota.reclaim)."
    if due_in is None:
        return f"Reclaim acts after {after:g} s of over-use."
    return "Reclaim is due." if due_in <= 0 else f"Reclaim starts in {due_in:.0f} s."


@dataclass(frozen=True, slots=True)
class Reach:
    """How much of the use of a quota that is over reclaim can take, and why not the rest.

    ``kept`` are words with the amounts that they are about.
    """

    movable: int = 0
    kept: tuple[tuple[str, int], ...] = ()

    def text(self, resource: str) -> str:
        """Say that nothing can be taken."""
        if not self.kept:
            return "It is over by rounding alone, which is not reclaimed."
        parts = (f"{format_amount(resource, amount)} {why}" for why, amount in self.kept)
        return f"Nothing of it can be reclaimed: it uses {', '.join(parts)}."


@dataclass(frozen=True, slots=True)
class ScaledMin:
    """Why less than ``minimum`` is guaranteed: the ``mins`` of all children of ``parent``.

    They add up to more than the ``total`` that the parent has; it is empty for the whole tree.
    """

    resource: str
    minimum: int
    parent: QuotaName
    mins: int
    total: int

    def text(self) -> str:
        minimum = format_amount(self.resource, self.minimum)
        return f"its min of {minimum} is scaled down: {self.tell_sum()}"

    def tell_sum(self) -> str:
        mins, total = (format_amount(self.resource, amount) for amount in (self.mins, self.total))
        if not self.parent:
            return f"the mins of the tree add up to {mins} and there are {total}"
        return f"the mins below {self.parent} add up to {mins} and it has {total}"


@dataclass(frozen=True, slots=True)
class Borrower:
    """A quota that uses ``over`` more than its share; ``users`` are its largest gangs and pods.

    ``reach`` is what reclaim can take from it.
    """

    quota: QuotaName
    over: int
    users: tuple[str, ...]
    reach: Reach

    def text(self) -> str:
        using = f" ({named(self.users, 3)})" if self.users else ""
        return f"Quota {self.quota} uses {{}} more than its share{using}."


@dataclass(frozen=True, slots=True)
class UnmetEntitlement(ReasonContext):
    """A quota may use ``requested`` more of ``resource`` and cannot: ``borrowers`` use it.

    ``due_in`` are the seconds until over-use is reclaimed, if ``reclaims``; None: not known.
    ``leaving`` are pods of the borrowers that are evicted for that and not gone yet, ``hanging``
    those that should have gone long ago. ``protected``
    are others that disruption budgets protect until ``until`` (0: not known) and no longer.
    ``scaled`` says why less than the min is guaranteed; None if it is not. ``frees_room`` says
    whether reclaim finds victims for this unit; None: nobody has looked.
    """

    quota: QuotaName
    resource: str
    guaranteed: int
    entitled: int
    used: int
    requested: int
    borrowers: tuple[Borrower, ...]
    is_known: bool = False
    after: float | None = None
    due_in: float | None = None
    leaving: tuple[str, ...] = ()
    scaled: ScaledMin | None = None
    frees_room: bool | None = None
    protected: tuple[str, ...] = ()
    until: float = 0.0
    hanging: tuple[Hanging, ...] = ()

    @property
    def about(self) -> str:
        return "protected" if self.protected else ""

    def text(self) -> str:
        amount, uses = self._write(self.guaranteed), self._write(self.used)
        why = f" ({self.scaled.text()})" if self.scaled is not None else ""
        own = f"Quota {self.quota} is guaranteed {amount} {self.resource}{why} and uses {uses}."
        if self.used + self.requested > self.guaranteed:
            amount = self._write(self.entitled)
            own = f"Quota {self.quota} is entitled to {amount} {self.resource} and uses {uses}."
        notes = [
            borrower.text().format(self._write(borrower.over)) for borrower in self.borrowers[:3]
        ]
        notes += [f"{tell_hanging(self.hanging)}."] if self.hanging else []
        return cut(" ".join(filter(None, (own, *notes, self._tell_reclaim()))), 512)

    def advice(self) -> tuple[str, ...]:
        if self.leaving:
            return ("Wait until the evicted pods are gone.",)
        if self.protected:
            return ("Wait: then they are evicted whatever their budgets say.",)
        users = [user for borrower in self.borrowers for user in borrower.users]
        ends = f"ave {named(users, 2)} end or shrink." if users else ""
        if self._keeps_all():
            return (f"H{ends}",) if ends else ()
        free = ends and f"Or h{ends}"
        if self.is_known and self.after is None:
            turn_on = "Have elasticQuota.reclaim turned on, so that over-use is reclaimed."
            return tuple(filter(None, (turn_on, free)))
        wait = "Wait until over-use is reclaimed; pods that budgets or labels protect stay."
        return tuple(filter(None, (wait, free)))

    def _tell_reclaim(self) -> str:
        if self.leaving:
            terminate = "terminates" if len(self.leaving) == 1 else "terminate"
            evicted = f"{plural(len(self.leaving), 'evicted pod')} still {terminate}"
            return f"Reclaim is under way: {evicted} ({named(self.leaving, 3)})."
        if self.protected:
            pods = plural(len(self.protected), "pod")
            until = f" until {format_time(self.until)}" if self.until else " for a while"
            names = named(self.protected, 3)
            return f"PodDisruptionBudgets protect {pods} from reclaim{until} ({names})."
        if self._keeps_all():
            largest = self.borrowers[0].reach
            is_none = not any(borrower.reach.movable for borrower in self.borrowers)
            return largest.text(self.resource) if is_none else _NO_ROOM
        if not self.is_known:
            return ""
        text = tell_reclaim(self.after, self.due_in)
        is_sure = self.after is None or self.frees_room
        return text if is_sure else f"{text.removesuffix('.')}, if that makes room for it."

    def _keeps_all(self) -> bool:
        """Whether reclaim, if it is on, is of no use to the unit."""
        if self.is_known and self.after is None:
            return False
        return self.frees_room is False or not any(
            borrower.reach.movable for borrower in self.borrowers
        )

    def _write(self, amount: int) -> str:
        return format_amount(self.resource, amount)
