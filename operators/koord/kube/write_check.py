"""Whether the API server lets this identity write what operators write.

Rights are asked for one by one with a SelfSubjectAccessReview, which every authenticated user may
create. An admission policy is no right: whether one is in the way is tried with a pod that is only
pretended to be created. That is tried only by those who may create pods, which the ServiceAccounts
of the operators may not.
"""

import asyncio
import logging
import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from koord.api.keys import operators as keys
from koord.kube.client import Client
from koord.kube.errors import Forbidden, KubeError

log = logging.getLogger(__name__)

_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Write(NamedTuple):
    """One kind of write; ``resource`` with its subresource. Without a namespace: in all of them."""

    group: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        resource, slash, subresource = self.resource.partition("/")
        full = f"{resource}.{self.group}" if self.group else resource
        return f"{self.verb} {full}{slash}{subresource}"


EVICT: Final = Write("", "pods/eviction", "create")
"""A role of its own grants this to placement, for some settings only."""

_DENIED_BY: Final = re.compile(r"ValidatingAdmissionPolicy '(koord-[a-z-]+)'")


class _AccessDecision(Struct):
    allowed: bool = False


class _AccessReview(Struct):
    status: _AccessDecision


async def find_missing_rights(client: Client, wanted: Iterable[Write]) -> tuple[Write, ...]:
    """Return those writes that this identity has no right to, sorted.

    What the server does not answer counts as a right: the write itself will tell.
    """
    writes = sorted({*wanted})
    allowed = await asyncio.gather(*(is_allowed(client, write) for write in writes))
    return tuple(write for write, may in zip(writes, allowed, strict=True) if may is False)


async def find_denying_policy(client: Client, namespace: str) -> str:
    """Return the name of a policy of ours that lets others write results of pods, but not us."""
    if not await is_allowed(client, Write("", "pods", "create", namespace)):
        return ""
    path = f"/api/v1/namespaces/{namespace}/pods"
    try:
        await client.request("POST", path, body=_make_pod(), params={"dryRun": "All"})
    except Forbidden as error:
        denied = _DENIED_BY.search(error.message)
        return denied[1] if denied else ""
    except KubeError as error:
        log.debug("Cannot try whether a policy is in the way", extra={"problem": str(error)})
    return ""


async def is_allowed(client: Client, write: Write) -> bool | None:
    """Ask for a right; None if the server does not tell."""
    resource, _, subresource = write.resource.partition("/")
    attributes = {
        "group": write.group,
        "resource": resource,
        "subresource": subresource,
        "verb": write.verb,
        "namespace": write.namespace,
        "name": write.name,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    try:
        return msgspec.json.decode(
            await client.post(_REVIEWS, body), type=_AccessReview
        ).status.allowed
    except (KubeError, ValueError) as error:
        log.debug("Cannot ask for a right", extra={"write": str(write), "problem": str(error)})
        return None


def _make_pod() -> dict[str, Any]:
    """Return a pod with a result, as strict a namespace as ours lets in."""
    secured = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "koord-write-check-", "annotations": {keys.PLAN: "{}"}},
        "spec": {"containers": [{"name": "none", "image": "none", "securityContext": secured}]},
    }
