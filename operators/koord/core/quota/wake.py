"""When a refused unit is worth another try: once what blocked it has more room, not before."""

from koord.core.quota.ledger import Ledger
from koord.core.quota.reasons import NonPreemptibleOverMin, QuotaExceeded


def has_more_room(refusal: QuotaExceeded, ledger: Ledger) -> bool:
    """Whether the quota that refused has more left of some resource that it was short of.

    A quota that is gone limits nothing any more, nor does a resource that it names no more.
    """
    account = ledger.find(refusal.quota)
    if account is None:
        return True
    limit, used = account.limit(ledger.rules), account.used
    if isinstance(refusal, NonPreemptibleOverMin):
        limit, used = account.spec.min, account.fixed_used
    return any(
        one.resource not in limit
        or limit[one.resource] - used.get(one.resource, 0) > one.limit - one.used
        for one in refusal.shortages
    )
