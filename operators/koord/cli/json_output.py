"""An answer as JSON: a stable shape, documented on the page about ``koord explain``.

Names are camelCase, times and quantities are written as the API writes them. Fields that do not
apply are null or empty, never left out. Fields may be added; none is renamed or removed.
"""

import dataclasses
from typing import Any

import msgspec

from koord.cli.answer import Explained, Explanation
from koord.core.explain import ShapeOffers, TopologyExplanation
from koord.core.plan import Gathered
from koord.core.plugins.node_diagnosis import NodeOffer
from koord.core.topology.strategy.domain_capacity import DomainCapacity
from koord.core.units import format_amount


def encode_answer(answer: Explanation) -> str:
    """Return the whole answer, indented."""
    return msgspec.json.format(msgspec.json.encode(make_document(answer), enc_hook=str)).decode()


def make_document(answer: Explanation) -> dict[str, Any]:
    """Return the answer as plain values."""
    return {
        "kind": answer.target.kind,
        "namespace": answer.target.namespace,
        "name": answer.target.name,
        "standing": answer.standing,
        "since": answer.history.since or None,
        "reason": None if answer.reason is None else _make_reason(answer.reason),
        "reported": _make_plain(answer.history.reported),
        "place": _make_plain(answer.place),
        "gang": _make_plain(answer.gang),
        "network": None if answer.network is None else make_network(answer.network),
        "offers": [_make_offers(offers) for offers in answer.offers],
        "advice": list(answer.advice),
        "add": answer.add or None,
        "warnings": list(answer.warnings),
    }


def make_network(network: TopologyExplanation) -> dict[str, Any]:
    """Return what a gang asks of the network, where it is, and what each domain offers."""
    return {
        "topology": network.wish.topology,
        "wish": [_make_plain(one) for one in network.wish.layers],
        "unknownLayers": list(network.unknown),
        "where": None if network.where is None else _make_where(network.where),
        "domains": [make_domain(domain) for domain in network.domains],
    }


def _make_where(where: Gathered) -> dict[str, Any]:
    return {
        "layer": where.layer,
        "domain": "/".join(where.domain),
        "domainsPerLayer": dict(where.used),
        "optimal": where.is_optimal,
        "gap": None if where.gap is None else {"layer": where.gap[0], "domains": where.gap[1]},
    }


def make_domain(domain: DomainCapacity) -> dict[str, Any]:
    """Return a domain of a topology with what is free in it."""
    return {
        "layer": domain.layer,
        "domain": "/".join(domain.path),
        "nodes": domain.nodes,
        "offer": domain.offer,
        "members": domain.members,
        "free": {one.resource: format_amount(one.resource, one.free) for one in domain.amounts},
        "allocatable": {
            one.resource: format_amount(one.resource, one.allocatable) for one in domain.amounts
        },
    }


def _make_reason(explained: Explained) -> dict[str, Any]:
    return {
        "code": explained.reason.code,
        "message": explained.message,
        "fields": _make_plain(explained.reason),
    }


def _make_offers(offers: ShapeOffers) -> dict[str, Any]:
    return {
        "pods": offers.pods,
        "requests": {name: format_amount(name, amount) for name, amount in offers.requests},
        "fit": offers.fit,
        "nodes": [_make_node(offer) for offer in offers.nodes],
    }


def _make_node(offer: NodeOffer) -> dict[str, Any]:
    return {
        "node": offer.node,
        "pods": offer.pods,
        "refusal": offer.refusal,
        "detail": offer.detail or None,
        "short": [
            {
                "resource": resource,
                "asked": format_amount(resource, asked),
                "free": format_amount(resource, free),
            }
            for resource, asked, free in offer.short
        ],
    }


def _make_plain(value: Any) -> Any:
    """Return a value with the fields of dataclasses as camelCase keys."""
    if dataclasses.is_dataclass(value):
        names = (field.name for field in dataclasses.fields(value))
        return {_camel(name): _make_plain(getattr(value, name)) for name in names}
    if isinstance(value, tuple):
        return [_make_plain(one) for one in value]
    return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
