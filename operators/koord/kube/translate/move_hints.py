"""What the manifest of a pod says of moving it, for all who decide about that."""

from collections.abc import Iterable, Mapping
from typing import Final

from koord.api.keys import migration as keys
from koord.core.model.pods import NO_MOVE_HINTS, MoveHints
from koord.kube.wire import WirePodVolume

_MIRROR: Final = "kubernetes.io/config.mirror"
_SOURCE: Final = "kubernetes.io/config.source"
_LOCAL: Final = MoveHints(has_local_storage=True)
_MAX_COST: Final = 1 << 31
_ABSENT: Final = frozenset({b"", b"null"})


def read_move_hints(
    annotations: Mapping[str, str] | None, volumes: Iterable[WirePodVolume] | None
) -> MoveHints:
    """Return what annotations and volumes of a pod say."""
    is_local = any(map(_is_local, volumes or ()))
    if not annotations:
        return _LOCAL if is_local else NO_MOVE_HINTS
    hints = MoveHints(
        is_local,
        _MIRROR in annotations or annotations.get(_SOURCE, "api") != "api",
        keys.EVICT in annotations,
        read_cost(annotations.get(keys.EVICTION_COST, "")),
    )
    return next((shared for shared in (NO_MOVE_HINTS, _LOCAL) if shared == hints), hints)


def _is_local(volume: WirePodVolume) -> bool:
    return not _ABSENT.issuperset((bytes(volume.empty_dir), bytes(volume.host_path)))


def read_cost(text: str) -> int:
    """Return a cost; a text that is none, or too large for 32 bits, counts as 0."""
    try:
        cost = int(text or "0") if len(text) < 12 else 0
    except ValueError:
        return 0
    return cost if -_MAX_COST <= cost < _MAX_COST else 0
