"""Signs plans with a key that only the operators hold, and verifies plans that are read back.

Whoever may edit a pod can write any annotation on it, so a plan counts only with a signature. It
covers the pod's uid and the whole plan, whose node is compared with the pod's node elsewhere: a
plan that was copied from another pod, or from an earlier pod of the name, does not verify.

The owner of a pod may also remove its plan, so that the pod looks like one that another scheduler
has placed, which nobody preempts. So a plan that was seen once counts until the pod is gone. After
a restart the spec is what is left: a pod that is pinned to its node by name was released by the
operators, unless a DaemonSet has made it.

The keys are in a Secret: the field ``current`` signs, all others are earlier keys that still
verify. Whoever removes ``current`` gets a new one. Keys never appear in logs or on the debug page.

Who installs the operators makes the Secret, empty: the right to make Secrets cannot be limited to a
name, and whoever makes them in a namespace can have tokens of its accounts. Where the Secret is not
there and cannot be made, the command that makes it is said wherever people look.
"""

import asyncio
import logging
import secrets
import time
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import Enum
from hashlib import blake2b
from hmac import compare_digest
from typing import Any, Final, NamedTuple, NoReturn, Protocol

import msgspec

from koord.api.keys import operators
from koord.core.model.pods import DAEMON_SET, RecordedPlan
from koord.isolation import Isolation
from koord.kube.client import Client, Media
from koord.kube.errors import Conflict, Forbidden, KubeError, NotFound
from koord.kube.lease import REPEAT_LOG_SECONDS, NoNamespace
from koord.kube.retry import retry
from koord.kube.wire import WireOwnerReference

log = logging.getLogger(__name__)
_isolated = Isolation("plan-signatures")

SECRET: Final = "koord-plan-key"  # noqa: S105 - its name
CURRENT: Final = "current"
KEY_BYTES: Final = 32
MAX_KEY_BYTES: Final = 64
READ_SECONDS: Final = 30.0
"""How often the Secret is read."""
UNKNOWN_SECONDS: Final = 5.0
"""How often at most it is read for signatures by keys that are not known."""
SIGN_SECONDS: Final = 30.0
"""How long a plan is tried to be signed again."""
_IN_FLIGHT: Final = 32
_TICK: Final = 1.0
_SEEN_TICK: Final = 0.05
_SEEN_SECONDS: Final = 10.0


class Trust(Enum):
    """Whether a plan counts."""

    NONE = "none"
    OUTDATED = "outdated"
    """It counts, but the current key did not sign it."""
    CURRENT = "current"


class PlanVerifier(Protocol):
    """Tells plans of the operators from those of others."""

    def judge(self, uid: str, text: str, signature: str) -> Trust:
        """Judge the plan annotation of the pod with this uid."""


class AnySignature:
    """For readers without the key, as the command line: every signed plan counts."""

    def judge(self, uid: str, text: str, signature: str) -> Trust:
        return Trust.CURRENT if uid and text and signature else Trust.NONE


class PlanKeys:
    """The keys of the operators, which may be replaced while they run; at first none."""

    def __init__(self, current: bytes = b"", earlier: Iterable[bytes] = ()) -> None:
        self.accepts_unsigned = False
        """Whether all plans count: while those of a release that did not sign are taken over."""
        self.met_unknown = False
        """Whether a signature named a key that is not known here."""
        self._keys: dict[str, bytes] = {}
        self._current = ""
        self.replace(current, earlier)

    def replace(self, current: bytes, earlier: Iterable[bytes]) -> None:
        self._keys = {_id_of(key): key for key in (*earlier, current) if key}
        self._current = _id_of(current) if current else ""

    def sign(self, uid: str, text: str) -> str:
        return f"{self._current}.{_digest(self._keys[self._current], uid, text)}"

    def judge(self, uid: str, text: str, signature: str) -> Trust:
        name, _, digest = signature.partition(".")
        key = self._keys.get(name)
        if key is None:
            self.met_unknown |= bool(signature)
        elif compare_digest(_digest(key, uid, text).encode(), digest.encode(errors="replace")):
            return Trust.CURRENT if name == self._current else Trust.OUTDATED
        return Trust.OUTDATED if self.accepts_unsigned else Trust.NONE


def _digest(key: bytes, uid: str, text: str) -> str:
    signed = f"{uid}\0{text}".encode(errors="surrogatepass")
    return blake2b(signed, key=key, digest_size=16).hexdigest()


def _id_of(key: bytes) -> str:
    return blake2b(key, digest_size=4).hexdigest()


def describe_missing(namespace: str) -> str:
    """Return that the Secret is missing, and the command that mends it."""
    return (
        f"the Secret {namespace}/{SECRET} is missing, without which no plan can be signed: "
        f"kubectl create secret generic {SECRET} --namespace {namespace}"
    )


async def is_missing(client: Client, namespace: str) -> bool:
    """Whether there is no Secret; False for whoever may not know."""
    try:
        await client.get(f"/api/v1/namespaces/{namespace}/secrets/{SECRET}", _Named)
    except NotFound:
        return True
    except KubeError:
        pass
    return False


class _Named(msgspec.Struct):
    """An object of which nothing is read."""


class _Secret(msgspec.Struct, rename="camel"):
    metadata: dict[str, Any]
    data: dict[str, str] | None = None
    type: str = "Opaque"
    api_version: str = "v1"
    kind: str = "Secret"


class PlanKeySecret:
    """Keeps ``keys`` as the Secret has them; ``makes_keys`` lets it fill what is missing there.

    ``missing`` is the text that the Secret is not there; empty while it is.
    """

    def __init__(self, client: Client, namespace: str, keys: PlanKeys, *, makes_keys: bool) -> None:
        self.is_loaded = False
        self.missing = ""
        self._client = client
        self._keys = keys
        self._makes_keys = makes_keys
        self._namespace = namespace
        self._secrets = f"/api/v1/namespaces/{namespace}/secrets"
        self._data: dict[str, str] = {}
        """The fields of the Secret as last read."""
        self._logged_at = float("-inf")

    async def load(self) -> None:
        """Return once there is a current key. Raises ``NoNamespace``."""
        while not self.is_loaded:
            await self._refresh()
            if not self.is_loaded:
                await asyncio.sleep(_TICK)

    async def run(self, changed: Callable[[], Awaitable[None]]) -> NoReturn:
        """Read the Secret regularly; call ``changed`` when the keys have changed."""
        read_at = time.monotonic()
        while True:
            await asyncio.sleep(_TICK)
            pause = UNKNOWN_SECONDS if self._keys.met_unknown else READ_SECONDS
            if time.monotonic() < read_at + pause:
                continue
            read_at, self._keys.met_unknown = time.monotonic(), False
            if await self._refresh():
                log.info("The keys that sign plans have changed")
                await changed()

    async def _refresh(self) -> bool:
        """Read the Secret, and complete it if possible; return whether the keys have changed."""
        try:
            data = await self._read()
        except (NotFound, _NotMade):
            self.missing = describe_missing(self._namespace)
            self._log_problem(self.missing)
            return False
        except KubeError as error:
            self._log_problem(str(error))
            return False
        self.missing = ""
        keys = {name: key for name, text in data.items() if (key := _decode_key(text))}
        if CURRENT not in keys:
            self._log_problem(f"it has no field {CURRENT} of {KEY_BYTES} to {MAX_KEY_BYTES} bytes")
            return False
        is_new, self._data = data != self._data, data
        current = keys.pop(CURRENT)
        self._keys.replace(current, keys.values())
        self.is_loaded = True
        return is_new

    async def _read(self) -> dict[str, str]:
        try:
            secret = await self._client.get(f"{self._secrets}/{SECRET}", _Secret)
        except NotFound:
            if not self._makes_keys:
                raise
            secret = None
        present = self._data if secret is None else secret.data or {}
        if present.get(CURRENT) and secret is not None:
            return present
        if not self._makes_keys:
            return present
        try:
            return await self._write(secret, present)
        except Conflict:
            # Another process was faster.
            return (await self._client.get(f"{self._secrets}/{SECRET}", _Secret)).data or {}

    async def _write(self, secret: _Secret | None, present: Mapping[str, str]) -> dict[str, str]:
        """Make a current key if there is none; a Secret that was deleted gets its keys again."""
        made = b64encode(secrets.token_bytes(KEY_BYTES)).decode()
        data = {**present, CURRENT: present.get(CURRENT) or made}
        if secret is not None:
            secret.data = data
            await self._client.put(f"{self._secrets}/{SECRET}", secret)
            return data
        metadata = {"name": SECRET, "namespace": self._namespace}
        try:
            await self._client.post(self._secrets, _Secret(metadata, data))
        except Forbidden as error:
            raise _NotMade from error
        except NotFound as error:
            raise NoNamespace(
                f"cannot create the Secret {self._namespace}/{SECRET}: {error.message}; create "
                f"the namespace first: kubectl create namespace {self._namespace}"
            ) from error
        return data

    def _log_problem(self, problem: str) -> None:
        now = time.monotonic()
        if now >= self._logged_at + REPEAT_LOG_SECONDS:
            self._logged_at = now
            where = f"{self._namespace}/{SECRET}"
            log.warning(
                "Cannot read the keys that sign plans", extra={"secret": where, "problem": problem}
            )


class _NotMade(Exception):  # noqa: N818 - not an error of the server
    """There is no Secret, and we may not make it."""


def _decode_key(text: str) -> bytes:
    """Return the key in a field of the Secret; empty if it cannot be one."""
    try:
        key = b64decode(text, validate=True)
    except ValueError:
        return b""
    return key if KEY_BYTES <= len(key) <= MAX_KEY_BYTES else b""


class OutdatedPlan(NamedTuple):
    """A plan that counts, but that the current key did not sign: of which object, and its text."""

    path: str
    text: str


async def sign_again(client: Client, keys: PlanKeys, outdated: Mapping[str, OutdatedPlan]) -> None:
    """Sign plans, by pod uid, with the current key; return once the watch has shown it.

    ``outdated`` is emptied by that. A plan that changes meanwhile is left as it is.
    """
    slots = asyncio.Semaphore(_IN_FLIGHT)
    async with asyncio.TaskGroup() as group:
        signed = [
            group.create_task(_sign_safely(client, keys, slots, uid, plan))
            for uid, plan in outdated.items()
        ]
    pending = {uid for task in signed if (uid := task.result())}
    log.info(
        "Signed plans with the current key",
        extra={"plans": len(pending), "failures": len(signed) - len(pending)},
    )
    until = time.monotonic() + _SEEN_SECONDS
    while pending & outdated.keys() and time.monotonic() < until:  # noqa: ASYNC110 - a cache
        await asyncio.sleep(_SEEN_TICK)


async def _sign_safely(
    client: Client, keys: PlanKeys, slots: asyncio.Semaphore, uid: str, plan: OutdatedPlan
) -> str:
    with _isolated.of(plan.path):
        return await _sign(client, keys, slots, uid, plan)
    return ""


async def _sign(
    client: Client, keys: PlanKeys, slots: asyncio.Semaphore, uid: str, plan: OutdatedPlan
) -> str:
    """Sign one plan; return the uid of its object, empty if it was not possible."""
    patch = [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": annotation_path(operators.PLAN), "value": plan.text},
        {
            "op": "add",
            "path": annotation_path(operators.PLAN_SIGNATURE),
            "value": keys.sign(uid, plan.text),
        },
    ]
    async with slots:
        try:
            await retry(
                lambda: client.patch(plan.path, patch, Media.JSON_PATCH), within=SIGN_SECONDS
            )
        except KubeError as error:
            log.warning("Cannot sign a plan", extra={"object": plan.path, "problem": str(error)})
            return ""
    return uid


def annotation_path(key: str) -> str:
    """Return where an annotation is, for a JSON patch."""
    return f"/metadata/annotations/{_escape(key)}"


def label_path(key: str) -> str:
    """Return where a label is, for a JSON patch."""
    return f"/metadata/labels/{_escape(key)}"


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


class KnownPlans:
    """The last plan of each pod that counted."""

    def __init__(self) -> None:
        self._plans: dict[str, RecordedPlan] = {}

    def keep(self, uid: str, plan: RecordedPlan) -> RecordedPlan:
        self._plans[uid] = plan
        return plan

    def recall(self, uid: str, node: str) -> RecordedPlan | None:
        """Return the plan with which a pod came to its node."""
        plan = self._plans.get(uid)
        return plan if plan is not None and node and plan.node in {"", node} else None

    def forget(self, uid: str) -> None:
        self._plans.pop(uid, None)


def is_daemon_set(owner: WireOwnerReference) -> bool:
    """Whether an owner may be a DaemonSet; see ``OwnerReference``."""
    return (owner.kind, owner.api_version, owner.controller) == DAEMON_SET


def is_pinned_by_us(pinned_to: str, node: str, owners: Iterable[WireOwnerReference] | None) -> bool:
    """Whether a running pod was pinned to its node by name as a release does it."""
    return bool(node) and pinned_to == node and not any(map(is_daemon_set, owners or ()))
