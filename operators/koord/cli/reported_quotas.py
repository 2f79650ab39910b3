"""Quotas as the operators reported them, for users who may read those of their namespace only.

A part of a tree says nothing about shares, so nothing is computed: the numbers are those of the
status, and the texts those of the conditions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec
from rich.console import RenderableType

from koord.answers.quota_view import QuotaOverview, QuotaView
from koord.api.keys import quota as keys
from koord.cli.connection import path_in
from koord.core.model.units import Amounts
from koord.core.quota.coverage import covers
from koord.core.quota.model import NO_USAGE, ROOT
from koord.core.quota.reclaim import Overuse
from koord.core.quota.status import QuotaCondition, Summary
from koord.kube.client import Client
from koord.kube.decode import MALFORMED
from koord.kube.errors import Forbidden
from koord.kube.kinds import QUOTAS
from koord.kube.translate.quotas import QuotaTranslator, read_amounts, read_recorded
from koord.kube.wire import Condition, ObjectList, WireElasticQuota

_CALM = frozenset({QuotaCondition.READY, "Accepted", "Enforced"})
"""Conditions that only matter if they do not hold."""


@dataclass(frozen=True, slots=True)
class ReportedQuota:
    """A quota, its conditions by type, and the namespaces whose pods count for it."""

    view: QuotaView
    conditions: Mapping[str, Condition]
    namespaces: tuple[str, ...] = ()


class _Status(msgspec.Struct):
    used: msgspec.Raw = msgspec.Raw()
    runtime: msgspec.Raw = msgspec.Raw()
    request: msgspec.Raw = msgspec.Raw()
    conditions: list[Condition] | None = None


async def read_reported(client: Client, namespace: str) -> tuple[ReportedQuota, ...] | None:
    """Return the quotas of a namespace, by name; None if they must not be read either."""
    try:
        objects = await client.get(path_in(QUOTAS.path, namespace), ObjectList[WireElasticQuota])
    except Forbidden:
        return None
    reported = map(make_reported, objects.items or ())
    return tuple(sorted(reported, key=lambda reported_quota: reported_quota.view.summary.name))


def make_reported(wire: WireElasticQuota) -> ReportedQuota:
    """Return what the operators last said of a quota."""
    try:
        status = msgspec.json.decode(bytes(wire.status) or b"{}", type=_Status)
    except MALFORMED:
        status = _Status()
    written = QuotaTranslator().translate(wire)
    spec = written.last_valid or written
    recorded = read_recorded(wire.metadata.annotations or {})
    used, share = _read(status.used), _read(status.runtime)
    summary = Summary(
        name=spec.name,
        parent="" if spec.parent == ROOT else spec.parent,
        tree=spec.tree_id,
        is_parent=spec.is_parent,
        min=spec.min,
        max=spec.max,
        weight=spec.share_weight(),
        share=share,
        request=_read(status.request),
        child_request=recorded.get(keys.CHILD_REQUEST.removeprefix(keys.PREFIX), {}),
        used=used,
    )
    conditions = {condition.type: condition for condition in status.conditions or ()}
    over = conditions.get(QuotaCondition.OVER_ENTITLEMENT)
    is_over = over is not None and over.status == "True"
    overuse = tuple(
        Overuse(spec.name, key, used[key], most)
        for key, most in sorted(share.items())
        if is_over and used.get(key, 0) > most
    )
    view = QuotaView(summary, spec.namespace, 0, overuse)
    return ReportedQuota(view, conditions, covers(spec))


def _read(raw: msgspec.Raw) -> Amounts:
    try:
        return read_amounts(bytes(raw))
    except MALFORMED:
        return {}  # somebody else has written nonsense into the status


def make_overview(quotas: tuple[ReportedQuota, ...]) -> QuotaOverview:
    return QuotaOverview(tuple(quota.view for quota in quotas), (), {}, NO_USAGE)


def list_remarks(quota: ReportedQuota) -> Iterator[RenderableType]:
    """Yield what the conditions say beyond that all is well."""
    for kind, condition in sorted(quota.conditions.items()):
        if (condition.status == "True") is not (kind in _CALM) and condition.message:
            yield f"{kind}: {condition.message}"
