"""Makes askers of users: what each may see and do is what the API server says.

However a user was recognised, the same is asked about her. Knows no tokens and no headers.
"""

from collections.abc import Iterable

from aiohttp import web

from koord.runtime.reviews import AccessReviews, NoReview, ResourceRight, TokenHolder
from koord.see.access import Asker, Seen
from koord.see.rights import UserRights


class Askers:
    """Asks ``reviews``; with ``hides_amounts`` tenants learn no exact amounts of others."""

    def __init__(self, reviews: AccessReviews, *, hides_amounts: bool = False) -> None:
        self._reviews = reviews
        self._rights = UserRights(reviews, hides_amounts=hides_amounts)

    def make(self, user: TokenHolder, until: float) -> Asker:
        """Return a user as an asker; ``until`` is when it has to be asked again who this is."""

        async def look(namespaces: Iterable[str], first: Iterable[str]) -> Seen:
            try:
                seen_now = await self._rights.find(user, namespaces, first)
            except NoReview as error:
                raise make_refusal(error) from None
            return Seen(seen_now.sight, seen_now.until)

        async def may(right: ResourceRight) -> bool:
            try:
                return (await self._reviews.may(user, right)).value
            except NoReview as error:
                raise make_refusal(error) from None

        return Asker(user.username, user.digest, user.crowd, until, look, may)


def make_refusal(error: NoReview) -> web.HTTPServiceUnavailable:
    """Return what is answered while nobody can say who asks, or what she may."""
    problem = " ".join(str(error).split())  # a reason is one line
    return web.HTTPServiceUnavailable(
        reason=f"the API server cannot be asked who you are and what you may: {problem}"
    )
