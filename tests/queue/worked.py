"""What worked examples are made of: a cluster, what runs, what arrives, and the policies.

Times are minutes; nodes have 8 GPUs each. At equal times: ends, then arrivals, then turns.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from koord.core.queue.counted_room import CountedNode, CountedRoom
from koord.core.queue.room import FOREVER, Run, UnitAsk
from koord.core.queue.settings import Policy, QueueSettings
from koord.core.queue.simulation import SimulatedQuota, Simulation, TraceUnit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from koord.core.queue.order import QueueQuota

SETTINGS: Final = QueueSettings(
    protect_after=0, short_limit=0, max_idle_share=100, max_hold=1440, hold_cool_down=60
)
GREEDY: Final = replace(SETTINGS, policy=Policy.BEST_EFFORT)
STRICT: Final = replace(SETTINGS, policy=Policy.STRICT)
EASY: Final = SETTINGS
CONSERVATIVE: Final = replace(SETTINGS, reserve_depth=16)


def unit(
    key: str,
    shape: str,
    duration: int,
    arrival: int,
    *,
    limit: int | None = -1,
    priority: int = 0,
    user: str = "",
    **ask: Any,
) -> TraceUnit:
    """Return a unit of ``podsxGPUs``; its limit is how long it runs, unless said otherwise."""
    pods, gpus = shape.split("x")
    limit = duration if limit == -1 else limit
    job = UnitAsk(key, ask.pop("quota", "q"), int(pods), int(gpus), limit, **ask)
    return TraceUnit(job, arrival, duration, priority, user)


@dataclass(frozen=True)
class Example:
    """A cluster and what happens in it."""

    nodes: Sequence[str]
    units: Sequence[TraceUnit]
    running: Sequence[tuple[str, Mapping[str, int], int, int | None]] = ()
    """Key, node -> GPUs, when it really ends, when it ends at the latest."""
    quotas: Sequence[SimulatedQuota] = ()
    blocks: Mapping[str, str] = field(default_factory=dict)
    quota_of: Mapping[str, str] = field(default_factory=dict)
    """Of what runs."""
    events: Callable[[Simulation], Mapping[int, Callable[[], None]]] = lambda _: {}
    has_equal_loads: bool = False
    size: int = 8
    """How much a node has."""
    engine: type[Simulation] = Simulation

    def make(self, settings: QueueSettings, **options: Any) -> Simulation:
        nodes = [CountedNode(name, self.size, self.blocks.get(name, "")) for name in self.nodes]
        capacity = self.size * len(nodes)
        quotas = self.quotas or [SimulatedQuota("q", capacity, capacity, capacity)]
        engine = _EqualLoads if self.has_equal_loads else self.engine
        simulation = engine(
            nodes,
            quotas,
            lambda _: settings,
            least_gain=1,
            **{"least_remainder": 60, **options},
        )
        for key, places, end, bound in self.running:
            job = UnitAsk(key, self.quota_of.get(key, quotas[0].name), 1, 0)
            run = Run(job, places, 0, FOREVER if bound is None else bound)
            simulation.add_run(run, end)
        return simulation

    def play(self, settings: QueueSettings, **options: Any) -> Simulation:
        simulation = self.make(settings, **options)
        simulation.play(self.units, self.events(simulation))
        return simulation

    def starts(self, settings: QueueSettings, **options: Any) -> dict[str, Any]:
        """Return unit -> start, or all its starts if it had to go."""
        history = self.play(settings, **options).history
        return {
            key: times[0] if len(times) == 1 else tuple(times) for key, times in history.items()
        }


class _RoomOfMinors(CountedRoom):
    """Each node is one GPU, such as A5; a unit is on one machine, or in one aligned partition."""

    def domains(self, job: UnitAsk) -> list[tuple[str, list[CountedNode]]]:
        size = 4 if job.gathers else 8
        parts = sorted({(name[0], int(name[1]) // size) for name in self.nodes})
        return [
            (
                f"{machine}{part}",
                [self.nodes[f"{machine}{at}"] for at in range(part * size, (part + 1) * size)],
            )
            for machine, part in parts
        ]


class PlacesOfMinors(Simulation):
    """Turns with devices: how many are free on a machine is not enough."""

    def make_room(self, nodes: dict[str, CountedNode]) -> CountedRoom:
        return _RoomOfMinors(nodes, {}, least_remainder=self.least_remainder)


class _EqualLoads(Simulation):
    """Turns between quotas do not depend on what they use."""

    def quotas_now(self) -> list[QueueQuota]:
        return [replace(quota, used={}) for quota in super().quotas_now()]
