"""What commands write as JSON: stable documents, described on the pages of ``docs``.

Names are camelCase; times and quantities have the format of the API. Fields that do not apply are
null or empty, never left out. Fields may be added; none is renamed or removed.
"""

from collections.abc import Container
from typing import Any

from koord.answers.encoding import encode, encode_amounts, encode_limits
from koord.answers.explain import ShapeOffers, TopologyExplanation
from koord.answers.quota_simulation import EditResult, GangResult, hide_names
from koord.answers.quota_view import QuotaView
from koord.answers.quota_waits import WaitingUnit
from koord.answers.reports import ReportedReason
from koord.answers.why import Explained, Explanation
from koord.core.model.gang_history import Episode
from koord.core.model.plan import ObservedTopology
from koord.core.model.text import format_time
from koord.core.model.units import format_amount
from koord.core.plugins.node_diagnosis import NodeOffer
from koord.core.quota.share_terms import Loan, ShareTerms
from koord.core.quota.spec_errors import InvalidQuota
from koord.core.topology.strategy.observation import DomainCapacity


def make_document(answer: Explanation) -> dict[str, Any]:
    return {
        "kind": answer.target.kind,
        "namespace": answer.target.namespace,
        "name": answer.target.name,
        "standing": answer.standing,
        "since": answer.history.since or None,
        "reason": None if answer.reason is None else _make_reason(answer.reason),
        "waits": None if answer.waits is None else _make_reason(answer.waits),
        "reported": encode(answer.history.reported),
        "place": encode(answer.place),
        "gang": encode(answer.gang),
        "network": None if answer.network is None else make_network(answer.network),
        "offers": [_make_offers(offers) for offers in answer.offers],
        "advice": list(answer.advice),
        "add": answer.add or None,
        "warnings": list(answer.warnings),
        "history": [_make_episode(episode) for episode in answer.episodes],
        "notes": list(answer.notes),
    }


def _make_episode(episode: Episode) -> dict[str, Any]:
    return {
        "time": format_time(episode.time),
        "what": episode.what,
        "why": episode.why,
        "by": episode.by or None,
    }


def make_network(network: TopologyExplanation) -> dict[str, Any]:
    return {
        "topology": network.wish.topology,
        "wish": [encode(layer) for layer in network.wish.layers],
        "unknownLayers": list(network.unknown),
        "where": None if network.where is None else _make_where(network.where),
        "domains": [make_domain(domain) for domain in network.domains],
    }


def _make_where(where: ObservedTopology) -> dict[str, Any]:
    return {
        "layer": where.layer,
        "domain": "/".join(where.domain),
        "domainsPerLayer": dict(where.used),
        "optimal": where.is_optimal,
        "gap": None if where.gap is None else {"layer": where.gap[0], "domains": where.gap[1]},
    }


def make_domain(domain: DomainCapacity) -> dict[str, Any]:
    return {
        "layer": domain.layer,
        "domain": "/".join(domain.path),
        "nodes": domain.nodes,
        "offer": domain.offer,
        "members": domain.members,
        "free": {
            amount.resource: format_amount(amount.resource, amount.free)
            for amount in domain.amounts
        },
        "allocatable": {
            amount.resource: format_amount(amount.resource, amount.allocatable)
            for amount in domain.amounts
        },
    }


def _make_reason(explained: Explained) -> dict[str, Any]:
    is_reported = isinstance(explained.reason, ReportedReason)
    return {
        "code": explained.reason.code,
        "message": explained.message,
        "fields": {} if is_reported else encode(explained.reason),
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
        "refusal": offer.cause,
        "detail": offer.detail or None,
        "short": [
            {
                "resource": resource,
                "asked": format_amount(resource, requested),
                "free": format_amount(resource, free),
            }
            for resource, requested, free in offer.short
        ],
    }


def make_quota(view: QuotaView) -> dict[str, Any]:
    summary = view.summary
    return {
        "name": summary.name,
        "namespace": view.namespace,
        "parent": summary.parent,
        "tree": summary.tree,
        "isParent": summary.is_parent,
        "min": encode_amounts(summary.min),
        "max": encode_limits(summary.max),
        "sharedWeight": encode_limits(summary.weight),
        "entitled": encode_amounts(summary.share),
        "scaledMin": encode_amounts(summary.scaled_min),
        "used": encode_amounts(summary.used),
        "request": encode_amounts(summary.request),
        "demand": encode_amounts(summary.child_request),
        "submitted": encode_amounts(summary.submitted),
        "keptForReplacements": view.lost,
        "over": {
            overuse.resource: format_amount(overuse.resource, overuse.over) for overuse in view.over
        },
        "problem": make_problem(view.problem) if view.problem else None,
        "keptFor": make_problem(view.kept_for) if view.kept_for else None,
        "waiting": {str(code): count for code, count in view.waiting.items()},
    }


def make_quota_units(view: QuotaView) -> dict[str, Any]:
    """Return what uses a quota, and what waits in it; of the resources that its max names."""
    keys = view.summary.max
    return {
        "users": [
            {
                "kind": user.kind,
                "name": user.name,
                "quota": user.quota,
                "used": encode_amounts({key: n for key, n in user.amounts.items() if key in keys}),
                "pods": user.pods,
                "running": user.running,
                "state": user.state,
                "since": format_time(user.since),
            }
            for user in view.users
        ],
        "waits": [make_wait(waiting_unit, keys) for waiting_unit in view.waits],
    }


def make_wait(waiting_unit: WaitingUnit, keys: Container[str]) -> dict[str, Any]:
    return {
        "position": waiting_unit.position or None,
        "kind": waiting_unit.kind,
        "name": waiting_unit.name,
        "quota": waiting_unit.quota,
        "asks": encode_amounts({key: n for key, n in waiting_unit.asks.items() if key in keys}),
        "pods": waiting_unit.pods,
        "reason": waiting_unit.reason.code,
        "since": format_time(waiting_unit.since),
    }


def make_problem(problem: InvalidQuota) -> dict[str, Any]:
    return {"quota": problem.quota, "reason": problem.rule, "message": problem.describe()}


def make_loan(loan: Loan) -> dict[str, str]:
    return {
        "lender": loan.lender,
        "borrower": loan.borrower,
        "resource": loan.resource,
        "amount": format_amount(loan.resource, loan.amount),
    }


def make_terms(terms: ShareTerms) -> dict[str, Any]:
    key = terms.resource
    amounts = {
        "parentShare": terms.total,
        "parentOwnPods": terms.own,
        "demand": terms.demand,
        "wants": terms.want,
        "min": terms.minimum,
        "scaledMin": terms.scaled,
        "guaranteed": terms.floor,
        "startsWith": terms.starts,
        "leftOver": terms.left,
        "borrows": terms.borrowed,
        "entitled": terms.share,
    }
    written = {name: format_amount(key, amount) for name, amount in amounts.items()}
    return {**written, "lends": terms.lends, "weight": terms.weight, "weights": terms.weights}


def make_gang_result(answer: GangResult, keys: Container[str]) -> dict[str, Any]:
    return {
        "starts": answer.reason.is_placed,
        "startsAlone": answer.starts_alone,
        "reason": str(answer.reason.code),
        "message": hide_names(answer.reason.text()),
        "ahead": [make_wait(waiting_unit, keys) for waiting_unit in answer.ahead],
        "aheadElsewhere": answer.ahead_elsewhere,
        "roomAfterAhead": encode_amounts(dict(answer.room)),
    }


def make_edit(answer: EditResult, keys: Container[str]) -> dict[str, Any]:
    return {
        "problem": make_problem(answer.problem) if answer.problem else None,
        "shares": [
            {
                "quota": quota,
                "resource": key,
                "entitled": format_amount(key, before),
                "then": format_amount(key, after),
            }
            for quota, key, before, after in answer.shares
        ],
        "over": {
            f"{overuse.quota}/{overuse.resource}": format_amount(overuse.resource, overuse.over)
            for overuse in answer.over
        },
        "starting": [make_wait(waiting_unit, keys) for waiting_unit in answer.starting],
        "waiting": [make_wait(waiting_unit, keys) for waiting_unit in answer.waiting],
    }
