"""Holds waiting jobs back and lets them go: ``koord queue hold`` and ``release``.

Writes one annotation of the PodGroup, or of a pod without one: with the rights of the user.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from koord.answers.envelope import AnswerHead
from koord.answers.reading import Target, TargetKind, TargetNotFoundError
from koord.api.keys import operators
from koord.cli.common import ExitCode, Output, fail
from koord.cli.connection import open_client, path_in
from koord.cli.find_target import find_planned, make_target
from koord.cli.output import print_in
from koord.domains.gang import POD_GROUPS
from koord.domains.placement import PODS
from koord.kube.client import Media
from koord.kube.errors import KubeError, NotFound

_PATHS: Final[Mapping[str, str]] = {
    TargetKind.POD: PODS.path,
    TargetKind.POD_GROUP: POD_GROUPS.path,
}


def set_hold(
    meant: tuple[str, str, str], kubeconfig: str, context: str, output: Output, *, is_held: bool
) -> None:
    typed = make_target(*meant)
    if typed is None or typed.kind is TargetKind.RESERVATION:
        fail("give a pod, podgroup, job or other workload", ExitCode.USAGE)
    try:
        target = asyncio.run(_write(typed, kubeconfig, context, is_held=is_held))
    except NotFound:
        fail(f"there is no {typed.kind} {typed.name}", ExitCode.USAGE)
    except KubeError as error:
        fail(str(error), ExitCode.UNREADABLE)
    except TargetNotFoundError as error:
        fail(str(error), ExitCode.USAGE)
    title = f"{target.kind.lower()}/{target.name}"
    verb = "held: it does not start until it is released" if is_held else "released"
    print_in(
        output,
        AnswerHead("Hold", time.time()),
        document=lambda: {
            "kind": target.kind,
            "namespace": target.namespace,
            "name": target.name,
            "held": is_held,
        },
        names=lambda: (title,),
        text=lambda: (f"{title} {verb}.",),
    )


async def _write(typed: Target, kubeconfig: str, context: str, *, is_held: bool) -> Target:
    """Write the annotation to what stands for a unit, and return that."""
    async with open_client(kubeconfig, context) as (client, access):
        meant = Target(typed.kind, typed.namespace or access.namespace, typed.name)
        target = await find_planned(client, meant, time.time())
        path = f"{path_in(_PATHS[target.kind], target.namespace)}/{quote(target.name, safe='')}"
        value = "true" if is_held else None
        body = {"metadata": {"annotations": {operators.QUEUE_HOLD: value}}}
        await client.patch(path, body, Media.MERGE_PATCH)
        return target
