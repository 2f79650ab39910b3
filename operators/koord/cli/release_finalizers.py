"""Takes our finalizer off quotas: what ``koord release --finalizers`` does.

The operators set it on a quota in use, and nobody else removes it: once they are gone, deletions
of such quotas, of their namespaces and of the definition would wait for ever. Finalizers of others
stay. While somebody leads, ours would come back, so that is refused.
"""

import asyncio
import time
from typing import Any, Final

import msgspec
import typer

from koord.api.keys import operators
from koord.cli.common import ExitCode, fail, say
from koord.cli.connection import open_client, path_in
from koord.cli.leases import DEFAULT_NAMESPACE, NAMES, get_lease, make_leader
from koord.cli.output import count_of
from koord.cli.release_pods import Way
from koord.kube.client import Client, Media
from koord.kube.errors import ApiError, KubeError, NotFound
from koord.kube.kinds import QUOTA, QUOTAS
from koord.kube.wire import ObjectList, ObjectMeta

_LEADERS: Final = (NAMES[0], f"koord-{QUOTA}")
"""Leases of the processes that set the finalizer."""


class _Quota(msgspec.Struct):
    metadata: ObjectMeta

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"


def release_quotas(kubeconfig: str, context: str, way: Way) -> None:
    try:
        asyncio.run(_release(kubeconfig, context, way))
    except KubeError as error:
        fail(str(error), ExitCode.UNREADABLE)


async def _release(kubeconfig: str, context: str, way: Way) -> None:
    async with open_client(kubeconfig, context) as (client, _):
        held = await _list_held(client)
        for quota in held:
            going = ", which is being deleted" if quota.metadata.deletion_timestamp else ""
            say(f"quota {quota.key}{going}")
        if not held:
            say("No quota with our finalizer is there; nothing to do.")
            return
        if way.dry_run:
            say(f"The finalizer would be taken off {count_of(len(held), 'quota')}.")
            return
        await _check_that_nobody_leads(client)
        if not way.yes and not typer.confirm("Take our finalizer off all of these?"):
            raise typer.Exit(ExitCode.NOT_WELL)
        problems = [
            name for name in await asyncio.gather(*(_patch(client, q) for q in held)) if name
        ]
        say(f"{count_of(len(held) - len(problems), 'quota')} released.")
        if problems:
            fail(problems[0], ExitCode.UNREADABLE)


async def _list_held(client: Client) -> list[_Quota]:
    try:
        objects = await client.get(QUOTAS.path, ObjectList[_Quota])
    except NotFound:
        return []
    return [
        item for item in objects.items or () if operators.IN_USE in (item.metadata.finalizers or ())
    ]


async def _check_that_nobody_leads(client: Client) -> None:
    for name in _LEADERS:
        lease = await get_lease(client, DEFAULT_NAMESPACE, name)
        leader = make_leader(lease, time.time()) if lease is not None else None
        if leader is not None and leader.holder:
            fail(
                f"{leader.holder} leads and would set it again; stop the operators first: "
                f"kubectl delete deployment --namespace {DEFAULT_NAMESPACE} --all",
                ExitCode.NOT_WELL,
            )


async def _patch(client: Client, quota: _Quota) -> str:
    """Remove the finalizer; return what is wrong, or nothing."""
    meta = quota.metadata
    at = f"/metadata/finalizers/{(meta.finalizers or []).index(operators.IN_USE)}"
    body: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/uid", "value": meta.uid},
        {"op": "test", "path": at, "value": operators.IN_USE},
        {"op": "remove", "path": at},
    ]
    try:
        await client.patch(
            f"{path_in(QUOTAS.path, meta.namespace)}/{meta.name}", body, Media.JSON_PATCH
        )
    except NotFound:
        return ""
    except ApiError as error:
        return str(error)
    return ""
