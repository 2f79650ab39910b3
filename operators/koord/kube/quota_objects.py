"""Writes the objects of the quota operators: root quotas, and the ConfigMap of covered namespaces.

The root quota of an ElasticQuotaProfile is written by server-side apply. The first write does not
force, so that an object created by somebody else is not taken over. Later writes name the uid, so
that they never change a recreated object. ``koord.core.quota.profile`` decides the content.

The ConfigMap tells the policy ``koord-enforce`` which namespaces quotas cover.

The overlay ``enforce`` brings the policy, the ConfigMap and the rights to both. Where these are
missing nothing is enforced, and nothing is written.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from koord.api.keys import operators
from koord.api.keys import quota as keys
from koord.core.quota.model import QuotaSpec
from koord.core.quota.profile import GeneratedQuota, ProfileKey, QuotaProfile
from koord.kube.client import Client, Media
from koord.kube.errors import Forbidden, NotFound
from koord.kube.objects import ObjectRef, ref_of_profile, ref_of_quota
from koord.kube.translate.amounts import encode_amounts, write_amounts
from koord.kube.translate.node_affinity import encode_selector
from koord.kube.wire import Identified, WireObjectMeta
from koord.kube.write_check import Write, is_allowed

MANAGER: Final = "koord-elasticquotaprofile"


class RootQuotaWriter:
    """Writes root quotas that differ from what their profile generates."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._applied: dict[ProfileKey, tuple[str, Mapping[str, Any]]] = {}
        """Profile -> its uid and the last applied body; each is applied once after a start."""

    async def write(
        self,
        profile: QuotaProfile,
        quota: GeneratedQuota,
        present: QuotaSpec | None,
        meta: WireObjectMeta | None,
    ) -> bool:
        body = make_body(profile, quota)
        if (
            present is not None
            and meta is not None
            and self._applied.get(profile.key) == (profile.uid, body)
            and _is_there(body, quota, present, meta)
        ):
            return False
        ref = ref_of_quota(QuotaSpec(quota.name, quota.namespace, present.uid if present else ""))
        await self._apply(ref, body, is_new=present is None)
        self._applied[profile.key] = profile.uid, body
        return True

    def forget(self, key: ProfileKey) -> None:
        self._applied.pop(key, None)

    async def _apply(self, ref: ObjectRef, body: Mapping[str, Any], *, is_new: bool) -> None:
        identity = {"name": ref.name, "namespace": ref.namespace}
        if not is_new:
            identity["uid"] = ref.uid
        whole = {
            "apiVersion": ref.api_version,
            "kind": ref.kind,
            **body,
            "metadata": {**identity, **body["metadata"]},
        }
        params = {"fieldManager": MANAGER, "force": "false" if is_new else "true"}
        await self._client.patch(ref.path, whole, Media.APPLY_PATCH, params)


def make_body(profile: QuotaProfile, quota: GeneratedQuota) -> dict[str, Any]:
    """Return a root quota without name, namespace and uid."""
    metadata: dict[str, Any] = {
        "labels": {
            **quota.labels,
            keys.PROFILE: quota.profile,
            keys.TREE_ID: quota.tree_id,
            keys.IS_ROOT: "true",
        },
        "annotations": {
            keys.TOTAL_RESOURCE: encode_amounts(quota.total),
            keys.UNSCHEDULABLE_RESOURCE: encode_amounts(quota.unschedulable),
        },
    }
    if profile.selector:
        metadata["annotations"][operators.NODE_SELECTOR] = encode_selector(profile.selector)
    if profile.is_owner:
        ref = ref_of_profile(profile)
        owner = {"apiVersion": ref.api_version, "kind": ref.kind, "name": ref.name, "uid": ref.uid}
        metadata["ownerReferences"] = [owner]
    spec = {"min": write_amounts(quota.min), "max": write_amounts(quota.max)}
    return {"metadata": metadata, "spec": spec}


def _is_there(
    body: Mapping[str, Any], quota: GeneratedQuota, present: QuotaSpec, meta: WireObjectMeta
) -> bool:
    wanted = body["metadata"]
    owners = {owner.uid for owner in meta.owner_references or ()}
    return (
        wanted["labels"].items() <= (meta.labels or {}).items()
        and wanted["annotations"].items() <= (meta.annotations or {}).items()
        and {owner["uid"] for owner in wanted.get("ownerReferences", ())} <= owners
        and (present.min, present.max) == (quota.min, quota.max)
    )


CONFIG_MAP: Final = "koord-covered-namespaces"
MAX_BYTES: Final = 900_000
"""Of all names and values: the API server takes a ConfigMap of a megabyte."""
_BINDING: Final = (
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/koord-enforce"
)


class EnforcementMap:
    """The ConfigMap in the namespace of the operators, which ``namespace`` returns."""

    def __init__(self, client: Client, namespace: Callable[[], str]) -> None:
        self._client = client
        self._namespace = namespace

    async def write(self, covered: Mapping[str, frozenset[str]]) -> frozenset[str] | None:
        """Replace what is there; return the namespaces that are enforced, None if nothing is."""
        namespace = self._namespace()
        write = Write("", "configmaps", "patch", namespace, CONFIG_MAP)
        if not await is_allowed(self._client, write):
            return None
        data = encode(covered)
        try:
            await self._client.get(_BINDING, Identified)
            body = [{"op": "add", "path": "/data", "value": data}]
            path = f"/api/v1/namespaces/{namespace}/configmaps/{CONFIG_MAP}"
            await self._client.patch(path, body, Media.JSON_PATCH)
        except (Forbidden, NotFound):
            return None
        return frozenset(data)


def encode(covered: Mapping[str, frozenset[str]]) -> dict[str, str]:
    """Return namespace -> resources, by name, as far as there is room."""
    data, size = dict[str, str](), 0
    for namespace, names in sorted(covered.items()):
        text = ",".join(sorted(names))
        size += len(namespace) + len(text.encode()) + 16
        if size > MAX_BYTES:
            break
        data[namespace] = text
    return data
