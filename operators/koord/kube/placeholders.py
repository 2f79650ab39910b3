"""Creates and deletes placeholder pods and guards. Which, and when, is decided by the caller."""

import msgspec

from koord.core.model.units import Amounts
from koord.core.reservation.model import PLACEHOLDERS, Placeholder, ReservationInfo
from koord.kube.client import Client
from koord.kube.errors import Conflict, NotFound
from koord.kube.translate.placeholders import make_guard, make_placeholder
from koord.kube.wire import WireObjectMeta

_PATH = f"/api/v1/namespaces/{PLACEHOLDERS}/pods"


class _Created(msgspec.Struct):
    metadata: WireObjectMeta


class PlaceholderWriter:
    """Each method is one request; raises the errors of ``koord.kube.errors``."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def create(self, reservation: ReservationInfo, requests: Amounts) -> Placeholder:
        body = make_placeholder(reservation, requests)
        meta = await self._post(body)
        node = reservation.status.node
        return Placeholder(meta.uid, meta.name, node, reservation.uid, dict(requests))

    async def create_guard(self, node: str) -> Placeholder:
        meta = await self._post(make_guard(node))
        return Placeholder(meta.uid, meta.name, node, "", {})

    async def delete(self, placeholder: Placeholder) -> None:
        """Delete at once, without a grace period; one that is gone is fine."""
        try:
            await self._client.delete(
                f"{_PATH}/{placeholder.name}", uid=placeholder.uid, grace_seconds=0
            )
        except (NotFound, Conflict):
            return

    async def _post(self, body: object) -> WireObjectMeta:
        return msgspec.json.decode(await self._client.post(_PATH, body), type=_Created).metadata
