"""Decides where the binaries of a sandbox come from.

`KUBEBUILDER_ASSETS`, then PATH, then the sandbox's own build. All come from one place, in versions
that work together: a mixture (with a stray kubectl on PATH, say) fails in odd ways. If a minor
version of Kubernetes is asked for, by the caller or by the variable `KOORD_KUBERNETES`, only that
one will do.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from koord_sandbox.build import Reporter, build_missing, find_caches
from koord_sandbox.components import Component

KUBECTL = "kubectl"
KUBERNETES = "KOORD_KUBERNETES"
_ASSETS = "KUBEBUILDER_ASSETS"
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
_MINIMUM: Mapping[str, tuple[int, int]] = {
    Component.APISERVER: (1, 30),  # what the operators need; see docs
    Component.ETCD: (3, 5),
    Component.KWOK: (0, 8),  # the oldest that our stages were tested with
}


class BinarySource(StrEnum):
    """Where a binary comes from."""

    ASSETS = _ASSETS
    PATH = "PATH"
    BUILT = "built"


@dataclass(frozen=True, slots=True)
class Binary:
    """A program of the sandbox."""

    path: Path
    version: str
    source: BinarySource


@dataclass(frozen=True, slots=True)
class Binaries:
    """All programs of a sandbox, and why earlier places were skipped."""

    by_name: Mapping[str, Binary]
    remarks: tuple[str, ...]

    def path(self, name: str) -> Path:
        return self.by_name[name].path


def list_needed(components: Iterable[Component]) -> list[str]:
    return [*(str(component) for component in Component if component in set(components)), KUBECTL]


def find_binaries(
    components: Iterable[Component], report: Reporter, kubernetes: str | None = None
) -> Binaries:
    """Return the programs of a sandbox, after building those that are missing.

    ``kubernetes`` is a minor version such as 1.33; by default that of the environment, or any.
    """
    needed = list_needed(components)
    wanted = os.environ.get(KUBERNETES, "") if kubernetes is None else kubernetes
    skipped: list[str] = []
    for source, look_up in _list_places():
        binaries = _take_whole(source, look_up, needed, wanted)
        if not isinstance(binaries, str):
            return Binaries(binaries, tuple(skipped))
        skipped.append(binaries)
    return Binaries(_build(needed, report, wanted), tuple(skipped))


def _list_places() -> list[tuple[BinarySource, Callable[[str], str | None]]]:
    places: list[tuple[BinarySource, Callable[[str], str | None]]] = []
    assets = os.environ.get(_ASSETS)
    if assets:
        places.append((BinarySource.ASSETS, lambda name: shutil.which(name, path=assets)))
    places.append((BinarySource.PATH, shutil.which))
    return places


def _take_whole(
    source: BinarySource, look_up: Callable[[str], str | None], needed: list[str], kubernetes: str
) -> dict[str, Binary] | str:
    """Return all programs of one place, or why it cannot be used."""
    paths = {name: look_up(name) for name in needed}
    missing = [name for name, path in paths.items() if path is None]
    if missing:
        return f"{source} skipped: no {', '.join(missing)}"
    binaries = {
        name: Binary(Path(path), _ask_version(name, path), source)
        for name, path in paths.items()
        if path is not None
    }
    unfit = _find_unfit(binaries) or _find_other_version(binaries, kubernetes)
    return f"{source} skipped: {unfit}" if unfit else binaries


def _build(needed: list[str], report: Reporter, kubernetes: str) -> dict[str, Binary]:
    caches = find_caches(kubernetes)
    chosen = {name: next(cache for cache in caches if cache.pins(name)) for name in needed}
    for cache in caches:
        build_missing(cache, [name for name in needed if chosen[name] is cache], report)
    return {
        name: Binary(cache.path(name), cache.read_version(name), BinarySource.BUILT)
        for name, cache in chosen.items()
    }


def _ask_version(name: str, path: str) -> str:
    question = ["version", "--client"] if name == KUBECTL else ["--version"]
    try:
        answer = subprocess.run(
            [path, *question], capture_output=True, text=True, check=False, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    match = _VERSION.search(answer.stdout)
    return f"v{match[0].removeprefix('v')}" if match else "unknown"


def _find_unfit(binaries: Mapping[str, Binary]) -> str | None:
    """Return the first program with an unsuitable version, and why."""
    server = binaries[Component.APISERVER]
    for name, binary in binaries.items():
        version = parse_version(binary.version)
        minimum = _MINIMUM.get(name)
        if minimum is not None and version < minimum:
            return f"{name} {binary.version} is older than {minimum[0]}.{minimum[1]}"
        if name.startswith("kube") and not _is_compatible(name, version, server):
            return f"{name} {binary.version} is not compatible with kube-apiserver {server.version}"
    return None


def _find_other_version(binaries: Mapping[str, Binary], kubernetes: str) -> str | None:
    version = binaries[Component.APISERVER].version
    if not kubernetes or version.startswith(f"v{kubernetes}."):
        return None
    return f"kube-apiserver {version} is not of {kubernetes}"


def _is_compatible(name: str, version: tuple[int, int], server: Binary) -> bool:
    # Kubernetes' version skew policy, without the allowance for rolling upgrades.
    skew = 1 if name == KUBECTL else 0
    major, minor = parse_version(server.version)
    return version[0] == major and abs(version[1] - minor) <= skew


def parse_version(text: str) -> tuple[int, int]:
    """Return major and minor; (0, 0) if it is not a version."""
    match = _VERSION.fullmatch(text)
    return (int(match[1]), int(match[2])) if match else (0, 0)
