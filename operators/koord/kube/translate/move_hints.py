"""What the manifest of a pod says of moving it, for all who decide about that."""

from collections.abc import Iterable, Mapping
from typing import Final

from koord.api.keys import migration as keys
from koord.core.model.pods import NO_MOVE_HINTS, MoveHints
from koord.kube.wire import WirePodVolume

_MIRROR: Final = "kubernetes.io/config.mirror"
_SOURCE: Final = "kubernetes.io/config.source"
_MEMORY: Final = "Memory"
_SHARED: Final = {
    hints: hints
    for hints in (
        NO_MOVE_HINTS,
        MoveHints(has_local_storage=True),
        MoveHints(has_memory_storage=True),
        MoveHints(has_local_storage=True, has_memory_storage=True),
    )
}
_MAX_COST: Final = 1 << 31
_ABSENT: Final = frozenset({b"", b"null"})


def read_move_hints(
    annotations: Mapping[str, str] | None, volumes: Iterable[WirePodVolume] | None
) -> MoveHints:
    """Return what annotations and volumes of a pod say."""
    is_local = is_memory = False
    for volume in volumes or ():
        if volume.empty_dir is not None and volume.empty_dir.medium == _MEMORY:
            is_memory = True
        elif volume.empty_dir is not None or bytes(volume.host_path) not in _ABSENT:
            is_local = True
    if not annotations and not is_local and not is_memory:
        return NO_MOVE_HINTS
    given = annotations or {}
    hints = MoveHints(
        is_local,
        is_memory,
        is_static=_MIRROR in given or given.get(_SOURCE, "api") != "api",
        evicts_protected=keys.EVICT in given,
        eviction_cost=read_cost(given.get(keys.EVICTION_COST, "")),
    )
    return _SHARED.get(hints, hints)


def read_cost(text: str) -> int:
    """Return a cost; a text that is none, or too large for 32 bits, counts as 0."""
    try:
        cost = int(text or "0") if len(text) < 12 else 0
    except ValueError:
        return 0
    return cost if -_MAX_COST <= cost < _MAX_COST else 0
