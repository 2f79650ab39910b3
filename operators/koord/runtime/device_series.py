"""The series of who holds which GPU, where the configuration asks for them.

Only the leader serves them: a query joins other series with these, and two processes that say the
same would make such a join ambiguous. There is one sample per pod and card, tens of thousands in a
large cluster, and few change between two scrapes: only nodes whose use has changed are looked at
again, and the text of the others is kept.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from koord.answers.card_shares import CardShare, list_card_shares
from koord.core.device.plugin import Devices
from koord.core.engine.state import ClusterState
from koord.domains.device_settings import DeviceSettings
from koord.isolation import Isolation
from koord.operators.names import PLACEMENT
from koord.runtime.collectors import escape_label

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts

MOST_SHARES: Final = 100_000
"""Pairs of pod and card that are served; how many are left out has a series of its own."""
LEFT_OUT: Final = "koord_device_allocations_left_out"

_Node: TypeAlias = tuple[CardShare, ...]


class HeldCards(NamedTuple):
    """What pods hold, by node, and how many pairs are left out."""

    nodes: Mapping[str, _Node]
    left_out: int = 0


class _Family(NamedTuple):
    name: str
    text: str
    labels: Callable[[CardShare], str]
    value: Callable[[CardShare], int | None]
    """None: there is no sample."""


def _write_labels(values: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{escape_label(value)}"' for name, value in values.items())


def _labels(share: CardShare) -> str:
    names = {"node": share.node, "minor": str(share.minor), "uuid": share.uuid}
    pod = {"namespace": share.namespace, "pod": share.pod}
    return _write_labels({**names, "model": share.model, **pod})


def _hami_labels(share: CardShare) -> str:
    pod = {"podnamespace": share.namespace, "podname": share.pod, "ctrname": ""}
    card = {"vdeviceid": str(share.minor), "deviceuuid": share.uuid, "zone": "vGPU"}
    return _write_labels({**pod, **card})


FAMILIES: Final = (
    _Family(
        "koord_device_allocation_info",
        "1 for each GPU that a pod holds, whole or in part.",
        _labels,
        lambda _: 1,
    ),
    _Family(
        "koord_device_allocated_milligpus",
        "Thousandths of the GPU that the pod was given.",
        _labels,
        lambda share: share.milli_gpus,
    ),
    _Family(
        "koord_device_memory_limit_bytes",
        "Memory of the GPU that the pod was given.",
        _labels,
        lambda share: share.memory or None,
    ),
)
HAMI_LIMIT: Final = _Family(
    "vGPU_device_memory_limit_in_bytes",
    "Memory of the GPU that the pod was given, by the name of older releases of HAMi.",
    _hami_labels,
    lambda share: share.memory or None,
)


@dataclass(slots=True)
class DeviceSeries:
    """The series; ``read`` is called in the event loop that plans, ``render`` in any thread."""

    state: ClusterState
    is_leader: Callable[[], bool]
    families: tuple[_Family, ...] = FAMILIES
    _seen: int = 0
    """The last change of use that was looked at."""
    _held: dict[str, _Node] = field(default_factory=dict)
    _kept: dict[str, tuple[_Node, tuple[str, ...]]] = field(default_factory=dict)
    """Node -> what its pods hold, and the lines of each family."""
    _isolated: Isolation = field(default_factory=lambda: Isolation("device-series"))

    def read(self) -> HeldCards:
        if not self.is_leader():
            return HeldCards({})
        devices = self.state.plugin(Devices)
        changes = devices.changes_of_use
        changed, self._seen = list(changes.after(self._seen)), changes.last
        for name in changed:
            shares = self._isolated.call(name, list_card_shares, devices, self.state.pods, name)
            self._held[name] = shares or ()
        for name in self._held.keys() - devices.reports.keys():
            del self._held[name]
        return _limit(self._held)

    def render(self, held: HeldCards, /) -> bytes:
        kept, self._kept = self._kept, {}
        for name, shares in held.nodes.items():
            before = kept.get(name)
            if before is None or before[0] is not shares:
                before = shares, tuple(_write(family, shares) for family in self.families)
            self._kept[name] = before
        return "".join(self._write_all(held.left_out)).encode()

    def _write_all(self, left_out: int) -> Iterator[str]:
        for at, family in enumerate(self.families):
            yield _write_head(family.name, family.text)
            yield from (lines[at] for _, lines in self._kept.values())
        yield _write_head(LEFT_OUT, "Pairs of pod and GPU without a series: there are too many.")
        yield f"{LEFT_OUT} {left_out}\n"


def _limit(held: Mapping[str, _Node]) -> HeldCards:
    count = sum(map(len, held.values()))
    if count <= MOST_SHARES:
        return HeldCards({name: shares for name, shares in held.items() if shares})
    nodes: dict[str, _Node] = {}
    left = MOST_SHARES
    for name, shares in held.items():
        nodes[name] = tuple(islice(shares, left))
        left -= len(nodes[name])
    return HeldCards(nodes, count - MOST_SHARES)


def _write_head(name: str, text: str) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} gauge\n"


def _write(family: _Family, shares: Iterable[CardShare]) -> str:
    samples = ((share, family.value(share)) for share in shares)
    return "".join(
        f"{family.name}{{{family.labels(share)}}} {value}\n"
        for share, value in samples
        if value is not None
    )


def start(parts: "Parts") -> None:
    settings = parts.settings.of(DeviceSettings)
    if PLACEMENT not in parts.operators or not settings.metrics:
        return
    families = (*FAMILIES, HAMI_LIMIT) if settings.hami_names else FAMILIES
    parts.metrics.watch_text(
        DeviceSeries(parts.reader.state, lambda: parts.lease() is not None, families)
    )
