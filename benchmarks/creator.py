"""Creates pods over several connections, as fast as possible, in a process of its own.

    python -m benchmarks.creator ORDER

`ORDER` is a file. In its own process its costs are not counted for any scheduler, and are the same
for all.
"""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks.objects import Pod, groups_path, make_group, make_pod, pods_path
from benchmarks.wire import Caller
from koord.kube.config import Access, load_kubeconfig

CONNECTIONS = 50


class Order(msgspec.Struct, frozen=True):
    """What to create: ``groups`` gangs of ``size`` pods, or ``groups`` single pods (size 1).

    With ``nodes`` the pods are bound from the start, evenly; groups take turns with ``quotas``.
    """

    kubeconfig: str
    namespace: str
    groups: int
    size: int
    requests: dict[str, str]
    scheduler: str
    gated: bool = False
    nodes: tuple[str, ...] = ()
    must_gather: str = ""
    quotas: tuple[str, ...] = ()


def main() -> None:
    order = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Order)
    asyncio.run(create(order, load_kubeconfig(order.kubeconfig)))


async def create(order: Order, access: Access) -> None:
    """Create PodGroups, then pods; return when all exist."""
    caller = Caller(access)
    if order.size > 1:
        await _post_all(caller, _make_groups(order, caller))
    await _post_all(caller, _make_pods(order, caller))


def _make_groups(order: Order, caller: Caller) -> Iterator[bytes]:
    for group in range(order.groups):
        body = make_group(f"gang-{group}", order.size, order.must_gather)
        yield caller.make_request("POST", groups_path(order.namespace), body)


def _make_pods(order: Order, caller: Caller) -> Iterator[bytes]:
    for number in range(order.groups * order.size):
        group, member = divmod(number, order.size)
        pod = Pod(
            order.namespace,
            f"pod-{group}-{member}",
            order.requests,
            scheduler=order.scheduler,
            group=f"gang-{group}" if order.size > 1 else "",
            quota=order.quotas[group % len(order.quotas)] if order.quotas else "",
            gated=order.gated,
            node=order.nodes[number % len(order.nodes)] if order.nodes else "",
        )
        yield caller.make_request("POST", pods_path(order.namespace), make_pod(pod))


async def _post_all(caller: Caller, requests: Iterator[bytes]) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(CONNECTIONS):
            group.create_task(_post(caller, requests))


async def _post(caller: Caller, requests: Iterator[bytes]) -> None:
    # The iterator is shared: each free connection takes the next.
    for request in requests:
        async with await caller.connect() as connection:
            await connection.send(request)
            for following in requests:
                await connection.send(following)


if __name__ == "__main__":
    main()
