"""Holds waiting jobs back and lets them go: ``koord queue hold`` and ``release``.

Writes one annotation with the rights of the user: to the PodGroup, or where there is none to each
pod that waits. A gang that is known from its owners is held by any of its pods, but its controller
may replace one at any time, and others may be first by the time at which it is released. So it is
held with the first write, and goes only after the last: whoever is interrupted repeats the command.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from koord.answers.envelope import AnswerHead
from koord.answers.reading import Target, TargetKind, TargetNotFoundError
from koord.api.keys import operators
from koord.cli.common import ExitCode, Output, fail
from koord.cli.connection import open_client, path_in
from koord.cli.find_target import TargetLookup, look_up_planned, make_target
from koord.cli.output import print_in
from koord.core.model.text import plural
from koord.domains.gang import POD_GROUPS
from koord.domains.placement import PODS
from koord.kube.client import Client, Media
from koord.kube.errors import KubeError, NotFound

_AT_ONCE: Final = 16
"""Pods that are written to at the same time: a Job may have thousands."""
_PATHS: Final[Mapping[str, str]] = {
    TargetKind.POD: PODS.path,
    TargetKind.POD_GROUP: POD_GROUPS.path,
}


@dataclass(frozen=True, slots=True)
class _Held:
    """What was written to: a PodGroup or a pod, or ``pods`` of something."""

    target: Target
    pods: int = 0

    @property
    def title(self) -> str:
        return f"{self.target.kind.lower()}/{self.target.name}"


def set_hold(
    meant: tuple[str, str, str], kubeconfig: str, context: str, output: Output, *, is_held: bool
) -> None:
    typed = make_target(*meant)
    if typed is None or typed.kind is TargetKind.RESERVATION:
        fail("give a pod, podgroup, job or other workload", ExitCode.USAGE)
    try:
        written = asyncio.run(_write(typed, kubeconfig, context, is_held=is_held))
    except NotFound:
        fail(f"there is no {typed.kind} {typed.name}", ExitCode.USAGE)
    except KubeError as error:
        fail(str(error), ExitCode.UNREADABLE)
    except TargetNotFoundError as error:
        fail(str(error), ExitCode.USAGE)
    verb = "held: it does not start until it is released" if is_held else "released"
    by = f" (written to {plural(written.pods, 'pod')})" if written.pods else ""
    print_in(
        output,
        AnswerHead("Hold", time.time()),
        document=lambda: {
            "kind": written.target.kind,
            "namespace": written.target.namespace,
            "name": written.target.name,
            "held": is_held,
        },
        names=lambda: (written.title,),
        text=lambda: (f"{written.title} {verb}{by}.",),
    )


async def _write(typed: Target, kubeconfig: str, context: str, *, is_held: bool) -> _Held:
    """Write the annotation to what stands for a unit, and return that."""
    async with open_client(kubeconfig, context) as (client, access):
        meant = Target(typed.kind, typed.namespace or access.namespace, typed.name)
        lookup = await look_up_planned(client, meant, time.time())
        value = "true" if is_held else None
        if lookup.target.kind is TargetKind.POD and lookup.pods:
            return await _write_pods(client, lookup, value)
        try:
            await _annotate(client, lookup.target, value)
        except NotFound:
            if not lookup.pods:  # otherwise its pods alone say their gang
                raise
            return await _write_pods(client, lookup, value)
        return _Held(lookup.target)


async def _write_pods(client: Client, lookup: TargetLookup, value: str | None) -> _Held:
    typed, names = lookup.typed, lookup.pods
    await _annotate_pods(client, typed.namespace, names, value)
    return _Held(Target(typed.kind, typed.namespace, typed.name), len(names))


async def _annotate_pods(
    client: Client, namespace: str, names: Sequence[str], value: str | None
) -> None:
    """Write to pods, a few at a time: what is gone by then needs nothing."""
    targets = [Target(TargetKind.POD, namespace, name) for name in names]
    for at in range(0, len(targets), _AT_ONCE):
        writes = (_annotate(client, target, value) for target in targets[at : at + _AT_ONCE])
        for outcome in await asyncio.gather(*writes, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, NotFound):
                raise outcome


async def _annotate(client: Client, target: Target, value: str | None) -> None:
    path = f"{path_in(_PATHS[target.kind], target.namespace)}/{quote(target.name, safe='')}"
    body = {"metadata": {"annotations": {operators.QUEUE_HOLD: value}}}
    await client.patch(path, body, Media.MERGE_PATCH)
