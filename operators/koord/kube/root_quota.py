"""Writes the root quota of an ElasticQuotaProfile by server-side apply.

The first write does not force, so that an object created by somebody else is not taken over. Later
writes name the uid, so that they never change a recreated object. ``koord.core.quota.profile``
decides the content.
"""

from collections.abc import Mapping
from typing import Any, Final

from koord.api.keys import operators
from koord.api.keys import quota as keys
from koord.core.quota.model import QuotaSpec
from koord.core.quota.profile import GeneratedQuota, ProfileKey, QuotaProfile
from koord.kube.client import Client, Media
from koord.kube.objects import ObjectRef, ref_of_profile, ref_of_quota
from koord.kube.translate.amounts import encode_amounts, write_amounts
from koord.kube.translate.node_selectors import encode_selector
from koord.kube.wire import WireObjectMeta

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
