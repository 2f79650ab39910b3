"""Decides who may read or change a page: whoever has the right by the token that is sent.

As with kube-rbac-proxy, a reader sends its token and needs the verb of its request on the path:
``get`` to read, ``put`` to set. The API server is asked, see ``reviews``.
"""

import logging

from koord.kube.client import Client
from koord.runtime.readers import Reader
from koord.runtime.reviews import AccessReviews, NoReview, PathRight, TokenReviews

log = logging.getLogger(__name__)


class Authorizer:
    """Decides about readers of the pages of one area."""

    def __init__(self, client: Client, audience: str = "") -> None:
        self._tokens = TokenReviews(client, audience=audience)
        self._access = AccessReviews(client)

    async def find_reader(self, authorization: str, path: str, verb: str) -> Reader:
        """Return who sends a header, with a status: 200, 401, 403, or 503 if nobody can tell."""
        token = find_bearer(authorization)
        if not token:
            return Reader(401)
        try:
            user = (await self._tokens.find_user(token)).value
            if user is None:
                return Reader(401)
            access = await self._access.may(user, PathRight(verb, path))
        except NoReview as error:
            log.warning("Cannot check who reads a page", extra={"problem": str(error)})
            return Reader(503)
        return Reader(200 if access.value else 403, user.username)


def find_bearer(authorization: str) -> str:
    """Return the token in a header ``Authorization``; empty if there is none."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.isascii() else ""
