"""Reads the cluster and prints why something waits: what ``koord explain`` does.

Not imported for ``--help``, which needs none of it.
"""

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import msgspec

from koord.api.compat import Compat
from koord.cli.answer import Explanation, TargetNotFoundError, make_answer
from koord.cli.cluster import (
    Extent,
    Reading,
    Target,
    TargetKind,
    open_client,
    path_in,
    read_cluster,
)
from koord.cli.common import ExitCode, fail, warn
from koord.cli.json_output import encode_answer
from koord.cli.output import make_console
from koord.cli.text import print_answer
from koord.kube.errors import KubeError
from koord.kube.kinds import POD_GROUPS, PODS
from koord.kube.wire import Identified, ObjectList

MAX_NAMES: Final = 500
"""Names offered as completions."""


@dataclass(frozen=True, slots=True)
class Question:
    """What was typed; an empty ``namespace`` means that of the context."""

    kind: TargetKind
    namespace: str
    name: str
    kubeconfig: str = ""
    context: str = ""
    compat: Compat = Compat.NONE


def ask(question: Question, *, as_json: bool, all_nodes: bool) -> None:
    now = time.time()
    try:
        with _without_collector():
            target, reading = asyncio.run(_read(question))
            answer = _answer(reading, target, now)
    except KubeError as error:
        fail(str(error), ExitCode.UNREADABLE)
    except TargetNotFoundError as error:
        fail(str(error), ExitCode.USAGE)
    for warning in answer.warnings:
        warn(warning)
    console = make_console()
    if as_json:
        console.file.write(f"{encode_answer(answer)}\n")
    else:
        print_answer(answer, console, now, all_nodes=all_nodes)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Turn the garbage collector off: everything read is kept, and it would cost a tenth."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def ask_version(kubeconfig: str, context: str) -> str:
    try:
        return asyncio.run(_read_version(kubeconfig, context))
    except KubeError as error:
        fail(str(error), ExitCode.UNREADABLE)


async def _read_version(kubeconfig: str, context: str) -> str:
    async with open_client(kubeconfig, context) as (client, _):
        return (await client.get("/version", _Version)).git_version


class _Version(msgspec.Struct, rename="camel"):
    git_version: str


def list_names(question: Question) -> list[str]:
    """Return the names in the question's namespace, for completion; none on errors."""
    try:
        return asyncio.run(_list_names(question))
    except KubeError:
        return []


async def _list_names(question: Question) -> list[str]:
    kind = PODS if question.kind is TargetKind.POD else POD_GROUPS
    async with open_client(question.kubeconfig, question.context) as (client, access):
        within = path_in(kind.path, question.namespace or access.namespace)
        page = await client.get(within, ObjectList[Identified], {"limit": str(MAX_NAMES)})
    return sorted(one.metadata.name for one in page.items or ())


async def _read(question: Question) -> tuple[Target, Reading]:
    async with open_client(question.kubeconfig, question.context) as (client, access):
        namespace = question.namespace or access.namespace
        target = Target(question.kind, namespace, question.name)
        compat = question.compat is Compat.KOORDINATOR
        return target, await read_cluster(client, target, compat=compat)


def _answer(reading: Reading, target: Target, now: float) -> Explanation:
    if reading.extent_of(PODS) is Extent.NOTHING:
        raise KubeError(
            f"you may not list pods, not even in namespace {target.namespace}: nothing can be "
            "explained (the ClusterRole koord-user has the right)"
        )
    return make_answer(reading, target, now)
