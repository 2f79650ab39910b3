"""Whether Koordinator's manager runs: it holds a Lease, and publishes batch resources itself.

Whoever runs it has its numbers on the nodes; two writers would alternate. Without the right to read
the Lease it counts as not running.
"""

from datetime import datetime
from typing import Final

import msgspec

from koord.api.slo_config import NAMESPACE
from koord.kube.client import Client
from koord.kube.errors import Forbidden, NotFound

LEASE: Final = "koordinator-manager"
_PATH: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LEASE}"
RENEWED_SECONDS: Final = 60.0
"""A Lease that was renewed so lately is held; its holder renews it every few seconds."""


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    renew_time: datetime | None = None


class _Lease(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


async def find_manager(client: Client, now: float) -> str:
    """Return who holds the Lease at a time of the epoch; empty for nobody. Raises ``KubeError``."""
    try:
        spec = (await client.get(_PATH, _Lease)).spec
    except (NotFound, Forbidden):
        return ""
    renewed = spec.renew_time.timestamp() if spec.renew_time else 0.0
    return spec.holder_identity or "" if abs(now - renewed) < RENEWED_SECONDS else ""
