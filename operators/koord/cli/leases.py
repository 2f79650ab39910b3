"""Reads the Leases of the operators: who leads, since when, and what the leader says of itself."""

import time
from datetime import UTC, datetime
from typing import Final

from koord.answers.leaders import DEFAULT_NAMESPACE, NOBODY, Leader
from koord.api.keys import operators
from koord.kube.client import Client
from koord.kube.election import LEASE_SECONDS, Lease
from koord.kube.errors import KubeError, NotFound
from koord.kube.leader_report import decode_report

_SEPARATE: Final = (
    "placement",
    "podgroup",
    "elasticquota",
    "elasticquotaprofile",
    "networktopology",
    "device",
    "reservation",
)
NAMES: Final = ("koord-operators", *(f"koord-{name}" for name in _SEPARATE))
"""Leases of the process with all operators, and of those that run one each."""
_SKEW_SECONDS: Final = 5.0
"""How far clocks may differ before a leader is taken for gone."""


async def read_leader(client: Client, namespace: str = DEFAULT_NAMESPACE) -> Leader | None:
    """Return who leads placement, or led it last; None if that cannot be known."""
    leaders: list[Leader] = []
    for name in NAMES[:2]:
        try:
            lease = await get_lease(client, namespace, name)
        except KubeError:
            return None
        if lease is None:
            continue
        leaders.append(make_leader(lease, time.time()))
        if leaders[-1].holder:
            return leaders[-1]
    return min(leaders, key=lambda leader: leader.renewed or 0.0, default=NOBODY)


async def get_lease(client: Client, namespace: str, name: str) -> Lease | None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
    try:
        return await client.get(path, Lease)
    except NotFound:
        return None


def make_leader(lease: Lease, now: float) -> Leader:
    spec = lease.spec
    renewed = age_of(spec.renew_time, now)
    limit = (spec.lease_duration_seconds or LEASE_SECONDS) + _SKEW_SECONDS
    is_led = bool(spec.holder_identity) and renewed is not None and renewed < limit
    annotations = lease.metadata.get("annotations") or {}
    return Leader(
        lease=str(lease.metadata.get("name", "")),
        holder=(spec.holder_identity or "") if is_led else "",
        since=spec.acquire_time or "",
        renewed=renewed,
        report=decode_report(annotations.get(operators.REPORT)) if is_led else None,
        term=spec.lease_transitions,
    )


def age_of(text: str | None, now: float) -> float | None:
    moment = parse_time(text)
    return None if moment is None else now - moment


def parse_time(text: object) -> float | None:
    """Return seconds since the epoch; None for what is no time."""
    try:
        moment = datetime.fromisoformat(text if isinstance(text, str) else "")
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
