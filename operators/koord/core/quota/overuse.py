"""Who uses more than it is entitled to now, of what, and by how much.

A quota is entitled to its fair share, and to its guarantee (as scaled) even where it does not ask
for all of it. Being over is no fault: idle capacity was lent, and its owner wants it back, or a
share fell. It says from whom something may be taken, not that anything should be: dividing in whole
units is not monotone, so a share may fall by some units although there is more to share out
(``is_rounding``).
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from koord.core.quota.ledger import Ledger
from koord.core.quota.model import QuotaName
from koord.core.quota.solve import solve

MOST_ROUNDED: Final = 8
"""Units that rounding may cost a quota, at most; two is the most that was ever found on a level."""


@dataclass(frozen=True, slots=True)
class Overuse:
    """A quota that uses more of a resource than it is entitled to."""

    quota: QuotaName
    resource: str
    used: int
    entitled: int

    @property
    def over(self) -> int:
        """By how much."""
        return self.used - self.entitled


def find_entitlement(ledger: Ledger, name: QuotaName) -> dict[str, int]:
    """Return what nobody may take from a quota, of the resources that its max names."""
    minimum = ledger.solution(name).minimum(name)
    return {
        key: max(share, minimum.get(key, 0)) for key, share in ledger.account(name).share.items()
    }


def find_overuse(ledger: Ledger) -> tuple[Overuse, ...]:
    """Return who is over what, by quota and resource."""
    found = []
    for name in ledger.names():
        account = ledger.account(name)
        if any(used > account.share.get(key, used) for key, used in account.used.items()):
            entitled = find_entitlement(ledger, name)
            found += [
                Overuse(name, key, account.used.get(key, 0), most)
                for key, most in sorted(entitled.items())
                if account.used.get(key, 0) > most
            ]
    return tuple(found)


def is_rounding(ledger: Ledger, over: Overuse) -> bool:
    """Whether less to share out would entitle a quota to all it uses: then nothing is owed."""
    if over.over > MOST_ROUNDED:
        return False
    solution = ledger.solution(over.quota)
    snapshot = solution.snapshot
    total = snapshot.total.get(over.resource, 0)
    for less in range(1, MOST_ROUNDED + 1):
        fewer = {**snapshot.total, over.resource: total - less}
        smaller = solve(replace(snapshot, total=fewer), solution)
        if smaller.share(over.quota).get(over.resource, 0) >= over.used:
            return True
    return False


class Patience:
    """For how long each quota has been over; it is time to act once that exceeds ``seconds``.

    Times are handed in, in seconds that never go back. After it was time, the clock starts anew.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: dict[QuotaName, float] = {}

    def note(self, over: Collection[QuotaName], now: float) -> list[QuotaName]:
        """Take who is over now; return those for whom it is time, by name."""
        self._since = {name: self._since.get(name, now) for name in over}
        due = sorted(name for name, at in self._since.items() if now - at > self._seconds)
        self._since |= dict.fromkeys(due, now)
        return due
