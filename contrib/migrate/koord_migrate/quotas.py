"""Queues of others as ElasticQuotas."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from koord.api.keys import operators, quota
from koord.api.podgroup import SIGS_GROUP
from koord.api.quantity import NANO_PER_UNIT, InvalidQuantityError, parse_quantity
from koord.api.workloads import Document
from koord_migrate.queue_settings import policy_of, stop_of
from koord_migrate.requested_settings import UNKNOWN, Say, advice_of
from koord_migrate.table import Action, rows_of

_UNLIMITED: Final = "1P"
"""For a resource with a min and without a limit: every resource of min has to be in max."""
_KAI_AMOUNTS: Final = {
    "cpu": ("cpu", "m"),
    "memory": ("memory", "M"),
    "gpu": ("nvidia.com/gpu", ""),
}
_KAI_FIELDS: Final = {"quota", "limit", "overQuotaWeight", "lendingLimit"}
_KAI_UNLIMITED: Final = -1

Amounts = dict[str, str]
_OR_NOTHING: Final = 'or nothing with the label `allow-lent-resource: "false"`: choose'


@dataclass
class QueueShare:
    """What a queue is entitled to."""

    name: str
    minimum: Amounts = field(default_factory=dict)
    maximum: Amounts = field(default_factory=dict)
    weight: Any = None
    parent: str = ""
    lends: bool = True
    namespaces: list[str] = field(default_factory=lambda: ["*"])
    own_namespace: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    """Of its queue."""


def add(left: Amounts, right: Amounts) -> Amounts:
    """Add two lists of amounts; an amount alone keeps its text."""
    total = dict(left)
    for name, amount in right.items():
        total[name] = _plus(total[name], amount) if name in total else amount
    return total


def _plus(left: str, right: str) -> str:
    nano = parse_quantity(left).nano + parse_quantity(right).nano
    whole, remainder = divmod(nano, NANO_PER_UNIT)
    return str(whole) if not remainder else f"{nano // 10**6}m"


def _texts(amounts: Any) -> Amounts:
    if not isinstance(amounts, dict):
        return {}
    texts = {str(name): str(amount) for name, amount in amounts.items()}
    for text in texts.values():
        parse_quantity(text)
    return texts


def _read_flavors(share: QueueShare, groups: Any, say: Say) -> None:
    """Add up the flavors of Kueue's resource groups."""
    unlimited: set[str] = set()
    borrowed: Amounts = {}
    lent = []
    for group in groups:
        flavors = group.get("flavors") or ()
        if len(flavors) > 1:
            say(
                "resourceGroups",
                "several flavors are added up: for pools see docs/quota.md#trees-of-node-pools",
            )
        for resource in (
            resource for flavor in flavors for resource in flavor.get("resources") or ()
        ):
            name = str(resource["name"])
            share.minimum = add(share.minimum, {name: str(resource.get("nominalQuota", 0))})
            limit = resource.get("borrowingLimit")
            if limit is None:
                unlimited.add(name)
            borrowed = add(borrowed, {name: str(limit or 0)})
            if resource.get("lendingLimit") is not None:
                lent.append(str(resource["lendingLimit"]))
    _read_lent(share, lent, say)
    total = add(share.minimum, borrowed)
    share.maximum = {name: total[name] for name in total.keys() - unlimited}


def _read_lent(share: QueueShare, limits: list[str], say: Say) -> None:
    """Read how much of each resource a queue lends; empty if there is no limit."""
    if limits and set(limits) == {"0"}:
        share.lends = False
    elif limits:
        say("lendingLimit", f"a quota lends all that is idle, {_OR_NOTHING}")


def _read_kai(share: QueueShare, resources: Any, say: Say) -> None:
    weights = {}
    lent = []
    for key in resources.keys() - _KAI_AMOUNTS.keys():
        say(f"spec.resources.{key}", UNKNOWN)
    for key, (name, unit) in _KAI_AMOUNTS.items():
        amounts = resources.get(key) or {}
        for unknown in amounts.keys() - _KAI_FIELDS:
            say(f"spec.resources.{key}.{unknown}", UNKNOWN)
        least = amounts.get("quota") or 0
        if "quota" in amounts and least != _KAI_UNLIMITED:
            share.minimum[name] = f"{least}{unit}"
        most = amounts.get("limit") or least
        if amounts and most != _KAI_UNLIMITED:
            share.maximum[name] = f"{most}{unit}"
        if "overQuotaWeight" in amounts:
            weights[name] = str(amounts["overQuotaWeight"])
        if amounts.get("lendingLimit") is not None:
            lent.append(str(amounts["lendingLimit"]))
    share.weight = weights or None
    _read_lent(share, lent, say)


def _read_guarantee(share: QueueShare, guarantee: Any, say: Say) -> None:
    kept = _texts(guarantee.get("resource"))
    if share.minimum and kept != share.minimum:
        say("guarantee", f"less than `deserved`: a quota lends all that is idle, {_OR_NOTHING}")
    else:
        share.minimum, share.lends = kept, False


def _read_weight(share: QueueShare, weight: Any, _say: Say) -> None:
    share.weight = weight.get("weight") if isinstance(weight, dict) else weight


def _read_strategy(share: QueueShare, strategy: Any, _say: Say) -> None:
    share.settings["policy"] = policy_of(strategy)


def _read_stop(share: QueueShare, stop: Any, _say: Say) -> None:
    if text := stop_of(stop):
        share.settings["stop"] = text


_READERS: Final[Mapping[Action, Callable[[QueueShare, Any, Say], None]]] = {
    Action.MIN: lambda share, value, _: setattr(share, "minimum", _texts(value)),
    Action.MAX: lambda share, value, _: setattr(share, "maximum", _texts(value)),
    Action.GUARANTEE: _read_guarantee,
    Action.PARENT: lambda share, value, _: setattr(share, "parent", str(value)),
    Action.FLAVORS: _read_flavors,
    Action.AMOUNTS: _read_kai,
    Action.WEIGHT: _read_weight,
    Action.STRATEGY: _read_strategy,
    Action.STOP: _read_stop,
}


def read_share(document: Document, say: Say) -> QueueShare:
    """Read a queue of others."""
    group = str(document["apiVersion"]).partition("/")[0]
    rows = rows_of(f"{document['kind']}.{group}")
    share = QueueShare(str(document["metadata"]["name"]))
    spec = document.get("spec") or {}
    # The guarantee is compared with what the queue deserves, so it comes last.
    for key in sorted(spec, key=lambda field: field == "guarantee"):
        row = rows.get(key)
        if row is None:
            say(f"spec.{key}", UNKNOWN)
        elif row.action is Action.REPORT:
            say(f"spec.{key}", advice_of(row))
        elif row.action in _READERS:
            try:
                _READERS[row.action](share, spec[key], say)
            except (AttributeError, InvalidQuantityError, KeyError, TypeError, ValueError) as error:
                say(f"spec.{key}", f"cannot be read: {error}; correct it, and migrate again")
    return share


def make_quota(share: QueueShare, *, is_parent: bool) -> Document:
    labels = {
        quota.PARENT: share.parent,
        quota.IS_PARENT: "true" if is_parent else "",
        quota.ALLOW_LENT_RESOURCE: "" if share.lends else "false",
    }
    annotations = {}
    if share.own_namespace:
        annotations[quota.NAMESPACES] = json.dumps([share.own_namespace])
    elif not is_parent and share.namespaces:
        annotations[operators.SHARED_WITH] = json.dumps(share.namespaces)
    if share.settings:
        annotations[operators.QUEUE] = json.dumps(share.settings, sort_keys=True)
    weights = _make_weights(share)
    if weights:
        annotations[quota.SHARED_WEIGHT] = json.dumps(weights)
    metadata: Document = {"name": share.name}
    if share.own_namespace:
        metadata["namespace"] = share.own_namespace
    for name, keys in (("labels", labels), ("annotations", annotations)):
        wanted = {key: value for key, value in keys.items() if value}
        if wanted:
            metadata[name] = wanted
    unlimited = sorted(share.minimum.keys() - share.maximum.keys())
    maximum = share.maximum | dict.fromkeys(unlimited, _UNLIMITED)
    spec = {"min": share.minimum, "max": maximum}
    return {
        "apiVersion": f"{SIGS_GROUP}/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": metadata,
        "spec": {name: amounts for name, amounts in spec.items() if amounts},
    }


def _make_weights(share: QueueShare) -> Amounts:
    if share.weight is None:
        return {}
    if isinstance(share.weight, dict):
        return share.weight
    names = share.maximum.keys() | share.minimum.keys() or {"cpu", "memory"}
    return {name: str(share.weight) for name in sorted(names)}
