"""Who uses more than it is entitled to now, of what, and by how much.

A quota is entitled to its fair share, and to its guarantee (as scaled) even where it does not ask
for all of it. Being over is no fault: idle capacity was lent, and its owner wants it back, or a
share fell. It says from whom something may be taken, not that anything should be: dividing in whole
units is not monotone, so a share may fall by some units although there is more to share out.
"""

from dataclasses import dataclass

from koord.core.quota.ledger import Ledger
from koord.core.quota.model import QuotaName


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
