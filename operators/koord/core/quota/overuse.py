"""Who uses more than it is entitled to now, of what, and by how much.

Being over is no fault: idle capacity was lent, and its owner wants it back, or a share fell. It
says from whom something may be taken, not that anything should be.
"""

from dataclasses import dataclass
from typing import Final

from koord.core.quota.ledger import Ledger
from koord.core.quota.model import QuotaName

ROUNDING: Final = 2
"""Units that a share may lose although there is more to share out: dividing in whole units is not
monotone. Nothing is ever taken back for that."""


@dataclass(frozen=True, slots=True)
class Overuse:
    """A quota that uses more of a resource than its fair share.

    ``guaranteed`` is its min after scaling: it is never asked to go below.
    """

    quota: QuotaName
    resource: str
    used: int
    entitled: int
    guaranteed: int

    @property
    def over(self) -> int:
        """By how much."""
        return self.used - self.entitled

    @property
    def is_rounding(self) -> bool:
        """Whether so little is over that a change elsewhere may explain it."""
        return self.over <= ROUNDING


def find_overuse(ledger: Ledger) -> tuple[Overuse, ...]:
    """Return who is over what, by quota and resource."""
    found = []
    for name in ledger.names():
        account = ledger.account(name)
        minimum = None
        for key, entitled in sorted(account.share.items()):
            used = account.used.get(key, 0)
            if used > entitled:
                minimum = minimum or ledger.solution(name).minimum(name)
                found.append(Overuse(name, key, used, entitled, minimum.get(key, 0)))
    return tuple(found)
