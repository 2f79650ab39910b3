"""Reads files with manifests, and what the API server would add to them."""

import asyncio
import sys
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from koord.api.manifest_text import MAX_FILE_BYTES, UnreadableError, read_documents
from koord.cli.common import ExitCode, fail
from koord.cli.connection import list_all, open_client
from koord.kube.client import Client
from koord.kube.errors import KubeError
from koord.kube.wire import WireObjectMeta
from koord.see.manifests import ServerDefaults

_CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
_STDIN: Final = "-"


class _PriorityClass(msgspec.Struct, rename="camel"):
    metadata: WireObjectMeta
    value: int = 0
    global_default: bool = False


def read_file(file: str) -> list[Any]:
    try:
        text = sys.stdin.read() if file == _STDIN else _read_text(Path(file))
        return list(read_documents(text))
    except UnreadableError as error:
        fail(f"{file}: {error}", ExitCode.USAGE)
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{file} cannot be read: {error}", ExitCode.USAGE)


def _read_text(path: Path) -> str:
    if path.stat().st_size > MAX_FILE_BYTES:
        raise UnreadableError(f"is larger than {MAX_FILE_BYTES} bytes")
    return path.read_text("utf-8")


def read_defaults(namespace: str, now: float, kubeconfig: str, context: str) -> ServerDefaults:
    """Return what the API server would add to manifests at ``now``."""
    return _make_defaults(namespace, now, _read_priorities(kubeconfig, context))


async def fetch_defaults(namespace: str, now: float, client: Client) -> ServerDefaults:
    """Return the same as ``read_defaults``, asked with a client that is open."""
    try:
        return _make_defaults(namespace, now, await _list_priorities(client))
    except KubeError:
        return _make_defaults(namespace, now, None)


def _make_defaults(namespace: str, now: float, priorities: dict[str, int] | None) -> ServerDefaults:
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    return ServerDefaults(namespace, created, priorities)


def _read_priorities(kubeconfig: str, context: str) -> dict[str, int] | None:
    async def read() -> dict[str, int]:
        async with open_client(kubeconfig, context) as (client, _):
            return await _list_priorities(client)

    try:
        return asyncio.run(read())
    except KubeError:
        return None


async def _list_priorities(client: Client) -> dict[str, int]:
    classes = await list_all(client, _CLASSES, _PriorityClass)
    values = {each.metadata.name: each.value for each in classes}
    default = next((each.value for each in classes if each.global_default), 0)
    return {**values, "": default}
