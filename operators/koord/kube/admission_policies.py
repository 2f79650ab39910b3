"""Writes the MutatingAdmissionPolicies of profiles and their bindings, and takes back others.

All have a label, by which they are found again; only those are ever changed or deleted. What a
policy is to say stands in it as a digest, so that a change by somebody else is seen by its
generation. Which policies there are to be is decided elsewhere.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2s
from typing import Any, Final

import msgspec

from koord.api.clustercolocationprofile import ClusterColocationProfile
from koord.core.profiles.generate import STAND_IN_PREFIX, GeneratedPolicy
from koord.kube.client import Client, Media
from koord.kube.errors import KubeError, NotFound
from koord.kube.wire import WireObjectMeta

log = logging.getLogger(__name__)

MANAGER: Final = "koord-clustercolocationprofile"
LABEL: Final = "app.kubernetes.io/managed-by"
LABEL_VALUE: Final = "koord-clustercolocationprofile"
GROUP: Final = "admissionregistration.k8s.io"
API: Final = f"{GROUP}/v1"
POLICY: Final = ("MutatingAdmissionPolicy", "mutatingadmissionpolicies")
BINDING: Final = ("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings")


class _PolicyMetadata(msgspec.Struct):
    metadata: WireObjectMeta


class _PolicyList(msgspec.Struct):
    items: list[_PolicyMetadata] | None = None


@dataclass(slots=True)
class PublishedPolicies:
    """What has come of one round of writes: the errors by name of policy."""

    errors: dict[str, str] = field(default_factory=dict)
    is_served: bool = True
    is_pending: bool = False
    """Whether policies are left that are to be deleted a moment later."""
    changed: set[str] = field(default_factory=set)
    """Names of those that are new or different: the API server follows them a moment later."""


class PolicyWriter:
    """Keeps the policies in the cluster as they are to be."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._written: dict[tuple[str, str], tuple[str, int, bytes]] = {}
        """Plural and name -> uid, generation and digest of what was written last."""

    async def write(self, wanted: Iterable[GeneratedPolicy]) -> PublishedPolicies:
        """Write what is missing or different, and delete what is not wanted.

        Raises the error of a list that cannot be read, except where policies are not served.
        """
        policies = {policy.name: policy for policy in wanted}
        outcome = PublishedPolicies()
        try:
            present = {plural: await self._list(plural) for _, plural in (POLICY, BINDING)}
        except NotFound:
            self._written.clear()
            return PublishedPolicies(is_served=False)
        for name, policy in policies.items():
            try:
                for kind, body in ((POLICY, make_policy(policy)), (BINDING, make_binding(policy))):
                    if await self._write_one(kind, body, present):
                        outcome.changed.add(name)
            except KubeError as error:
                outcome.errors[name] = str(error)
        is_new = policies.keys() - present[POLICY[1]].keys()
        # Bindings first: a binding without its policy would be an error in the log of the server.
        for _, plural in (BINDING, POLICY):
            for name, meta in present[plural].items():
                if name not in policies and is_new and name.startswith(STAND_IN_PREFIX):
                    # It stands in until the API server has seen what takes its place.
                    outcome.is_pending = True
                elif name not in policies:
                    await self._delete(plural, name, meta, outcome)
        return outcome

    async def _list(self, plural: str) -> dict[str, WireObjectMeta]:
        params = {"labelSelector": f"{LABEL}={LABEL_VALUE}"}
        answer = await self._client.list(_path(plural), params, is_metadata_only=True)
        listed = msgspec.json.decode(answer, type=_PolicyList).items or ()
        return {item.metadata.name: item.metadata for item in listed}

    async def _write_one(
        self,
        kind: tuple[str, str],
        body: Mapping[str, Any],
        present: Mapping[str, Mapping[str, WireObjectMeta]],
    ) -> bool:
        """Write an object unless it is there as it is to be; return whether it has changed."""
        _, plural = kind
        name = body["metadata"]["name"]
        meta, digest = present[plural].get(name), _digest(body)
        if meta is not None:
            seen = (meta.uid, meta.generation, digest)
            if self._written.get((plural, name)) == seen:
                return False
        # What is not ours is not taken over: without the label the first write must not force.
        params = {"fieldManager": MANAGER, "force": "false" if meta is None else "true"}
        answer = await self._client.patch(
            f"{_path(plural)}/{name}", body, Media.APPLY_PATCH, params
        )
        made = msgspec.json.decode(answer, type=_PolicyMetadata).metadata
        self._written[plural, name] = (made.uid, made.generation, digest)
        log.info("A policy of profiles is written", extra={"resource": plural, "object": name})
        return meta is None or made.generation != meta.generation

    async def _delete(
        self, plural: str, name: str, meta: WireObjectMeta, outcome: PublishedPolicies
    ) -> None:
        try:
            await self._client.delete(f"{_path(plural)}/{name}", uid=meta.uid)
        except NotFound:
            pass
        except KubeError as error:
            outcome.errors[name] = str(error)
            return
        self._written.pop((plural, name), None)
        log.info("A policy of profiles is deleted", extra={"resource": plural, "object": name})


def make_policy(policy: GeneratedPolicy) -> dict[str, Any]:
    """Return the MutatingAdmissionPolicy as it is to be."""
    return {**_make_object(POLICY[0], policy), "spec": policy.spec}


def make_binding(policy: GeneratedPolicy) -> dict[str, Any]:
    """Return the binding, which selects nothing by itself."""
    spec: dict[str, Any] = {"policyName": policy.name}
    if policy.priority_class:
        spec["paramRef"] = {"name": policy.priority_class, "parameterNotFoundAction": "Allow"}
    return {**_make_object(BINDING[0], policy), "spec": spec}


def _make_object(kind: str, policy: GeneratedPolicy) -> dict[str, Any]:
    names = ClusterColocationProfile.names
    owners = [
        {"apiVersion": names.api_version, "kind": names.kind, "name": name, "uid": uid}
        for name, uid in policy.owners
    ]
    metadata: dict[str, Any] = {
        "name": policy.name,
        "labels": {LABEL: LABEL_VALUE, "app.kubernetes.io/part-of": "koord-operators"},
        # Without the operators, policies go with the last of their profiles.
        "ownerReferences": owners,
    }
    return {"apiVersion": API, "kind": kind, "metadata": metadata}


def _path(plural: str) -> str:
    return f"/apis/{API}/{plural}"


def _digest(body: Mapping[str, Any]) -> bytes:
    return blake2s(msgspec.json.encode(body), digest_size=16).digest()
