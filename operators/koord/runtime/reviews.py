"""Asks the API server who holds a token, and what a user may: TokenReviews, SubjectAccessReviews.

Answers are kept for a short time, a bounded number of them, under a digest: no token is kept here.
However many wait for one answer, it is asked for once; and only few are asked for at a time, so
that a flood of requests becomes no flood of reviews. Knows no HTTP of ours.
"""

import asyncio
import base64
import binascii
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from koord.kube.client import Client
from koord.kube.errors import KubeError

V = TypeVar("V")

ALLOWED_SECONDS: Final = 45.0
"""How long a token that was good is not asked about again. The API server itself remembers for up
to 10 s that one was, so whoever has asked has no answer that is older than a minute."""
REFUSED_SECONDS: Final = 10.0
"""How long a token that was no good is not asked about again."""
RIGHT_SECONDS: Final = 60.0
"""How long an answer about a right counts."""
MOST_TOKENS: Final = 1024
MOST_RIGHTS: Final = 16_384
RENEWED_AFTER: Final = 2 / 3
"""After this part of the time for which an answer counts, the next question has it asked for anew,
and is answered from what is known: so nobody who goes on asking waits for a review."""
AT_ONCE: Final = 16
"""Reviews that are under way at the same time."""
MOST_WAITING: Final = 512
"""Tokens that are asked about and not answered yet."""
MOST_RIGHTS_WAITING: Final = 8192
"""The same of rights: after a start everybody comes at once, with up to 200 namespaces each."""
MOST_TOKEN: Final = 16 * 1024
"""Characters of a token: none that is longer is asked about."""
_TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
_ACCOUNTS: Final = "system:serviceaccount:"
_ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class NoReview(Exception):  # noqa: N818 - what it says is what is wrong
    """The API server does not answer, or does not let us ask."""


class TokenHolder(Struct, frozen=True):
    """Who holds a token, as the API server says."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}

    @property
    def crowd(self) -> str | None:
        """The namespace of a ServiceAccount: who may create one there may create thousands."""
        prefix, _, name = self.username.partition(_ACCOUNTS)
        return name.partition(":")[0] if name and not prefix else None

    @property
    def digest(self) -> bytes:
        """What tells users with different rights apart."""
        return sha256(msgspec.json.encode(self, order="sorted")).digest()


class _ReviewStatus(Struct):
    authenticated: bool = False
    allowed: bool = False
    audiences: tuple[str, ...] = ()
    user: TokenHolder = TokenHolder()


class _Review(Struct):
    status: _ReviewStatus = msgspec.field(default_factory=_ReviewStatus)


@dataclass(frozen=True, slots=True)
class ResourceRight:
    """A right to objects; an empty namespace means all, an empty name all objects there."""

    verb: str
    group: str
    plural: str
    namespace: str = ""
    name: str = ""

    @property
    def spec(self) -> Mapping[str, Any]:
        attributes = {
            "verb": self.verb,
            "group": self.group,
            "resource": self.plural,
            "namespace": self.namespace,
            "name": self.name,
        }
        return {"resourceAttributes": {key: value for key, value in attributes.items() if value}}


@dataclass(frozen=True, slots=True)
class PathRight:
    """A right to a path of a server, which is no resource."""

    verb: str
    path: str

    @property
    def spec(self) -> Mapping[str, Any]:
        return {"nonResourceAttributes": {"path": self.path, "verb": self.verb}}


class Kept(NamedTuple, Generic[V]):
    """An answer, until when it counts, and when it is asked for anew, on the monotonic clock."""

    value: V
    until: float
    renew_at: float = float("inf")


@dataclass(slots=True)
class ReviewCounts:
    """How questions were answered since the start, and how many answers are kept now."""

    sent: int = 0
    """To the API server, and answered."""
    kept: int = 0
    """By what it had said before."""
    failed: int = 0
    """Not at all."""
    size: int = 0

    def answers(self) -> tuple[tuple[str, int], ...]:
        return ("asked", self.sent), ("kept", self.kept), ("failed", self.failed)


class KeptAnswers(Generic[V]):
    """Answers by the digest of their question. Used from one event loop."""

    def __init__(self, most: int, most_waiting: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._most_waiting = most_waiting
        self._clock = clock
        self._kept: OrderedDict[bytes, Kept[V]] = OrderedDict()
        self._asked: dict[bytes, asyncio.Task[Kept[V]]] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)
        self.counts = ReviewCounts()

    def __len__(self) -> int:
        return len(self._kept)

    def get_last(self, key: bytes) -> Kept[V] | None:
        """Return an answer that is known, whether it still counts or not."""
        return self._kept.get(key)

    def get(self, key: bytes) -> Kept[V] | None:
        """Return an answer that is known and counts."""
        kept = self._kept.get(key)
        return kept if kept is not None and self._clock() < kept.until else None

    async def find(self, key: bytes, ask: Callable[[], Awaitable[tuple[V, float]]]) -> Kept[V]:
        """Return an answer; ``ask`` returns it and for how many seconds it counts.

        Raises NoReview.
        """
        kept = self.get(key)
        if kept is not None:
            self.counts.kept += 1
            if kept.renew_at <= self._clock() and len(self._asked) < self._most_waiting:
                # Once: after a failure it counts until its time is over.
                self._kept[key] = kept._replace(renew_at=float("inf"))
                self._begin(key, ask)
            return kept
        if key not in self._asked and len(self._asked) >= self._most_waiting:
            raise NoReview("too many reviews are asked for")
        self._begin(key, ask)
        # Whoever goes away does not end it for the others.
        return await asyncio.shield(self._asked[key])

    def _begin(self, key: bytes, ask: Callable[[], Awaitable[tuple[V, float]]]) -> None:
        if key not in self._asked:
            task = self._asked[key] = asyncio.ensure_future(self._ask(key, ask))
            task.add_done_callback(lambda done: self._forget(key, done))

    async def _ask(self, key: bytes, ask: Callable[[], Awaitable[tuple[V, float]]]) -> Kept[V]:
        async with self._turns:
            asked_at = self._clock()
            try:
                value, seconds = await ask()
            except (KubeError, msgspec.DecodeError, msgspec.ValidationError) as error:
                self.counts.failed += 1
                raise NoReview(str(error)) from error
        self.counts.sent += 1
        # Of tokens that are no good it is asked only as often as their senders may.
        renew_at = float("inf") if value is None else asked_at + RENEWED_AFTER * seconds
        kept = Kept(value, asked_at + seconds, renew_at)
        self._kept[key] = kept
        self._kept.move_to_end(key)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)
        self.counts.size = len(self._kept)
        return kept

    def _forget(self, key: bytes, done: "asyncio.Task[Kept[V]]") -> None:
        self._asked.pop(key, None)
        if not done.cancelled():
            done.exception()  # whoever waited has it; nobody may have


class TokenReviews:
    """Says who holds a token."""

    def __init__(
        self, client: Client, clock: Callable[[], float] = time.monotonic, audience: str = ""
    ) -> None:
        """With an ``audience`` tokens that are for it are good, too; no API server takes those."""
        self._client = client
        self._audience = audience
        self._answers = KeptAnswers[TokenHolder | None](MOST_TOKENS, MOST_WAITING, clock)

    @property
    def counts(self) -> ReviewCounts:
        return self._answers.counts

    def is_known(self, token: str) -> bool:
        """Whether a token was good when it was asked about last, or need not be asked about."""
        key = _digest(token)
        last = self._answers.get_last(key)
        return last is not None and (last.value is not None or self._answers.get(key) is not None)

    async def find_user(self, token: str) -> Kept[TokenHolder | None]:
        """Return who holds a token, None if it is no good, and until when that counts.

        Raises NoReview.
        """
        if not token or not token.isascii() or len(token) > MOST_TOKEN:
            return Kept(None, float("inf"))
        return await self._answers.find(_digest(token), lambda: self._ask(token))

    async def _ask(self, token: str) -> tuple[TokenHolder | None, float]:
        audiences = [each for each in audiences_of(token) if each == self._audience]
        spec = {"token": token, **({"audiences": audiences} if audiences else {})}
        body = {"kind": "TokenReview", "spec": spec}
        status = await _review(self._client, _TOKEN_REVIEWS, body)
        # Authenticators that know no audiences say none.
        if not status.authenticated or not set(audiences) <= set(status.audiences):
            return None, REFUSED_SECONDS
        return status.user, max(0.0, min(ALLOWED_SECONDS, expiry_of(token) - time.time()))


class AccessReviews:
    """Says what users may."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._answers = KeptAnswers[bool](MOST_RIGHTS, MOST_RIGHTS_WAITING, clock)

    @property
    def counts(self) -> ReviewCounts:
        return self._answers.counts

    def get(self, user: TokenHolder, right: ResourceRight | PathRight) -> Kept[bool] | None:
        """Return what is known already."""
        return self._answers.get(_key_of(user, right))

    async def may(self, user: TokenHolder, right: ResourceRight | PathRight) -> Kept[bool]:
        """Return whether a user has a right, and until when that counts. Raises NoReview."""
        return await self._answers.find(_key_of(user, right), lambda: self._ask(user, right))

    async def _ask(self, user: TokenHolder, right: ResourceRight | PathRight) -> tuple[bool, float]:
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            **right.spec,
        }
        body = {"kind": "SubjectAccessReview", "spec": spec}
        status = await _review(self._client, _ACCESS_REVIEWS, body)
        return status.allowed, RIGHT_SECONDS


async def _review(client: Client, path: str, body: dict[str, Any]) -> _ReviewStatus:
    return msgspec.json.decode(await client.post(path, body), type=_Review).status


def _digest(token: str) -> bytes:
    return sha256(token.encode(errors="replace")).digest()


def _key_of(user: TokenHolder, right: ResourceRight | PathRight) -> bytes:
    return sha256(user.digest + repr(right).encode(errors="replace")).digest()


class _Claims(Struct):
    exp: float = float("inf")


class _AudienceClaim(Struct):
    aud: tuple[str, ...] = ()


def expiry_of(token: str) -> float:
    """Return when a token ends by its own words, in seconds since the epoch; infinite without any.

    It is not verified here: it only shortens what the API server has said.
    """
    try:
        return msgspec.json.decode(_claims_of(token), type=_Claims).exp
    except (ValueError, binascii.Error, msgspec.DecodeError):
        return float("inf")


def audiences_of(token: str) -> tuple[str, ...]:
    """Return for whom a token is by its own words, which says only how it is asked about."""
    try:
        return msgspec.json.decode(_claims_of(token), type=_AudienceClaim).aud
    except (ValueError, binascii.Error, msgspec.DecodeError):
        return ()


def _claims_of(token: str) -> bytes:
    """Return what a token says. Raises ``ValueError`` and ``binascii.Error``."""
    parts = token.split(".")
    if len(parts) != 3:
        raise ValueError("no JSON Web Token")
    return base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
