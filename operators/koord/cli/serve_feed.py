"""Where ``koord serve`` reads the feed of a leader on another machine, and by which token.

Whoever may write the Lease could name any address, so the only token that is ever sent is one for
the audience of the feed, which no API server takes.
"""

from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import quote

from msgspec import Struct, field

from koord.answers.leaders import Leader
from koord.cli.connection import path_in
from koord.domains.placement import PODS
from koord.kube.client import Client
from koord.kube.errors import KubeError
from koord.store.feed import FeedError

FEED_TOKEN: Final = Path("/var/run/secrets/koord-feed/token")
"""Where the overlay puts the token; the kubelet renews it."""


class _LeaderStatus(Struct):
    pod_ip: str = field(default="", name="podIP")


class _LeaderPod(Struct):
    status: _LeaderStatus = field(default_factory=_LeaderStatus)


def read_feed_token() -> Mapping[str, str]:
    """Return the headers of a request to the feed."""
    try:
        token = FEED_TOKEN.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return {}
    return {"Authorization": f"Bearer {token}"}


async def find_feed(client: Client, namespace: str, leader: Leader) -> str:
    """Return the address of a leader's feed, that of its pod if it listens on all of them.

    Empty if it serves none. Raises ``FeedError``.
    """
    report = leader.report
    host, _, port = ("" if report is None else report.feed).rpartition(":")
    try:
        is_of_pod = ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return ""
    if not is_of_pod:
        return f"{host}:{port}"
    name = leader.holder.rpartition("_")[0]
    try:
        pod = await client.get(
            f"{path_in(PODS.path, namespace)}/{quote(name, safe='')}", _LeaderPod
        )
        address = ip_address(pod.status.pod_ip)
    except (KubeError, ValueError) as error:
        raise FeedError(f"the pod {name} of the leader is not found: {error}") from error
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
