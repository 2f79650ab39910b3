"""Nominations are not written on pods that could not be bound afterwards."""

from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.builders import make_pod
from tests.support.plan_keys import make_keys

from koord.api.keys import operators
from koord.core.model.pods import Nominated
from koord.kube.errors import RequestTooLarge
from koord.kube.nominator import Nominator

if TYPE_CHECKING:
    from koord.kube.client import Client

NOMINATED = Nominated("n1", "plan-1", "default/high", 1, 1.0)


class Server:
    """Keeps the annotations of one pod of which ``limit`` bytes may be added to ``size``."""

    def __init__(self, size: int, limit: int) -> None:
        self.size, self.limit = size, limit
        self.annotations: dict[str, str] = {}
        self.writes = 0

    async def patch(self, _path: str, body: Any, _media: object) -> bytes:
        self.writes += 1
        merged = {**self.annotations, **body["metadata"]["annotations"]}
        present = {key: value for key, value in merged.items() if value is not None}
        if len(str(present)) > self.limit:
            raise RequestTooLarge(500, "", "etcdserver: request is too large")
        self.annotations = present
        return b" " * self.size


@pytest.mark.parametrize(
    ("size", "limit", "writes", "is_nominated"),
    [(9_000, 20_000, 1, True), (1_500_000, 20_000, 3, True), (1_500_000, 2_000, 3, False)],
    ids=["small", "large", "too large"],
)
async def test_room_for_the_binding_is_tried(
    size: int, limit: int, writes: int, *, is_nominated: bool
) -> None:
    server = Server(size, limit)
    nominator = Nominator(cast("Client", server), make_keys())
    pod = make_pod("high").build()
    assert await nominator.nominate(pod, NOMINATED) is is_nominated
    assert server.writes == writes
    assert set(server.annotations) == {operators.NOMINATION, operators.NOMINATION_SIGNATURE}
    assert await nominator.clear(pod)
    assert not server.annotations
