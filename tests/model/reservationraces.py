"""An owner arrives while its reservation ends: it expires, is deleted, loses its node, or is used.

With a crash at one write. Which of the two comes first is left open. That no room is used twice,
that what is used once has one owner, and that no room stays lost is judged from the API's objects.
Everything is made from a seed.
"""

import json
import random
from dataclasses import dataclass, field
from typing import Any, Final

from tests.model.network import CrashPoint
from tests.model.objects import (
    GPU,
    NAMESPACE,
    PodPlan,
    allocatable_of,
    gang_of,
    gpus_of,
    has_ended,
    is_terminating,
    make_pod_group,
    name_of,
    node_of,
    uid_of,
)
from tests.model.steps import Step, Story, quiet
from tests.model.store import NODES, PODS, RESERVATIONS, Event, Obj
from tests.model.world import World, open_world

from koord.api.keys.reservation import ALLOCATED
from koord.core.reservation.metrics import find_drift

PATH: Final = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
ENDS: Final = ("expires", "is deleted", "its node goes", "a second owner", "a gang of owners")
_MOST_WRITES: Final = 12
_SIZE: Final = 8
_APP: Final = "owner"


@dataclass(frozen=True, slots=True)
class Race:
    """A story, and whether its reservation is used once."""

    story: Story
    end: str
    is_once: bool


def make_race(seed: int) -> Race:
    """Make the race of a seed."""
    rng = random.Random(f"reservation race {seed}")
    end = ENDS[seed % len(ENDS)]
    is_gang = end == "a gang of owners"
    is_once = end == "a second owner" or rng.random() < 0.5
    ttl = rng.choice((1, 2))
    reservation = _make_reservation(
        rng.choice((4, 8)), f"{ttl}s" if end == "expires" else "0s", is_once=is_once
    )
    gang = "g" if is_gang else ""
    count = rng.randint(2, 4) if is_gang else 2
    each = rng.choice((2, 4))
    sizes = [each if is_gang else rng.choice((2, 4)) for _ in range(count)]
    owners = [
        PodPlan(f"owner-{at}", gpus=size, app=_APP, gang=gang) for at, size in enumerate(sizes)
    ]
    rivals = [PodPlan(f"rival-{at}", gpus=rng.choice((4, 8))) for at in range(rng.randint(0, 2))]
    # A status is written half a second after its time has come, and a pod within 20 ms.
    ahead = ttl + 0.5 if end == "expires" else 1.0
    near = rng.choice((0.0, 0.002, 0.004, 0.008, 0.02, 0.05))
    first = [Step(0.0, "create_pod", (one,)) for one in rivals]
    nodes = [Step(0.0, "add_node", (f"n{at}", _SIZE)) for at in range(rng.choice((1, 1, 2)))]
    before, after = _make_end(end), [Step(near, "create_pod", (owners[0],))]
    if end == "expires":
        before = [Step(0.0, "wait")]
    elif rng.random() < 0.5:
        before, after = [Step(0.0, "create_pod", (owners[0],))], [_after(_make_end(end)[0], near)]
    if end == "a second owner":
        before = [Step(0.0, "create_pod", (owners[0],))]
        after = [Step(near, "create_pod", (owners[1],))]
    if is_gang:
        before = [Step(0.0, "put_pod_group", (make_pod_group(gang, count),))]
        after = [Step(near, "create_pod", (one,)) for one in owners]
    before = [_after(before[0], ahead + rng.uniform(-0.03, 0.03)), *before[1:]]
    crash = CrashPoint(rng.randint(1, _MOST_WRITES), is_before=rng.random() < 0.5)
    steps = (
        Step(0.0, "keep_reservations"),
        Step(0.0, "inject_faults", ((), 0.0, rng.choice((0.0, 0.02, 0.3)))),
        *([Step(0.0, "crash_at", (crash,))] if rng.random() < 0.7 else []),
        *nodes,
        Step(0.0, rng.choice(("start", "begin_with_standby"))),
        Step(0.1, "request", ("POST", PATH, reservation)),
        *(_after(one, rng.choice((0.0, 0.1, 0.9))) for one in first),
        *before,
        *after,
    )
    return Race(Story(seed, steps), end, is_once)


def _after(step: Step, wait: float) -> Step:
    return Step(max(wait, 0.0), step.call, step.args)


def _make_end(end: str) -> list[Step]:
    if end == "its node goes":
        return [Step(0.0, "remove_node", ("n0",))]
    return [Step(0.0, "request", ("DELETE", f"{PATH}/r"))]


def _make_reservation(gpus: int, ttl: str, *, is_once: bool) -> Obj:
    amounts = {GPU: str(gpus)}
    container = {"name": "c", "image": "x", "resources": {"limits": amounts, "requests": amounts}}
    return {
        "metadata": {"name": "r"},
        "spec": {
            "owners": [{"labelSelector": {"matchLabels": {"app": _APP}}}],
            "allocateOnce": is_once,
            "ttl": ttl,
            "template": {"metadata": {"namespace": NAMESPACE}, "spec": {"containers": [container]}},
        },
    }


@dataclass(slots=True)
class _Watcher:
    """Adds up what is used and held of every node at every change."""

    world: World
    is_once: bool
    violations: list[str]
    owners: set[str] = field(default_factory=set)
    """All pods that ever were bound into the reservation."""

    def hear(self, event: Event) -> None:
        if event.kind not in {PODS, RESERVATIONS}:
            return
        if event.kind == PODS and node_of(event.obj) and reservation_of(event.obj):
            self.owners.add(uid_of(event.obj))
            gang = gang_of(event.obj)
            if self.is_once and len(self.owners) > 1 and not gang:
                self.violations.append(f"{len(self.owners)} pods own what is used once")
        for node in self.world.server.store.all(NODES):
            taken = self.taken_on(name_of(node))
            if taken > allocatable_of(node):
                what = f"{taken} of {allocatable_of(node)} are used and held on {name_of(node)}"
                self.violations.append(f"{what} after {event.type} of {name_of(event.obj)}")

    def taken_on(self, node: str) -> int:
        """Return what pods use, and what reservations hold besides."""
        pods = [one for one in self.world.pods() if node_of(one) == node and not has_ended(one)]
        taken = sum(map(gpus_of, pods))
        for one in self.world.server.store.all(RESERVATIONS):
            taken += self.held_by(one, node)
        return taken

    def held_by(self, reservation: Obj, node: str) -> int:
        status = reservation.get("status") or {}
        if status.get("phase") != "Available" or status["nodeName"] != node:
            return 0
        uid, size = uid_of(reservation), int(status["allocatable"][GPU])
        pods = (one for one in self.world.pods() if node_of(one) == node and not has_ended(one))
        return max(0, size - sum(gpus_of(one) for one in pods if reservation_of(one) == uid))


def reservation_of(pod: Obj) -> str:
    """Return the uid of the reservation that is recorded on a pod."""
    text = (pod["metadata"].get("annotations") or {}).get(ALLOCATED)
    return json.loads(text)["uid"] if text else ""


@dataclass(slots=True)
class Result:
    """The outcome of a race."""

    violations: list[str] = field(default_factory=list)
    has_crashed: bool = False
    has_owner: bool = False


def run_race(race: Race) -> Result:
    """Run a race to its end."""
    result = Result()
    with quiet(), open_world(race.story.seed) as world:
        watcher = _Watcher(world, race.is_once, result.violations)
        world.server.store.listeners.append(watcher.hear)
        for step in race.story.steps:
            step.take(world)
        world.settle()
        result.violations += [*world.ledger.violations, *_judge(world, watcher)]
        result.has_crashed = len(world.processes) > 1
        result.has_owner = bool(watcher.owners)
    return result


def _judge(world: World, watcher: _Watcher) -> list[str]:
    """Judge the end: whatever fits is placed, and the operators have it right."""
    assert world.parts is not None
    state = world.parts.reader.state
    state.refresh()
    found = [f"drift: {one}" for one in find_drift(state)]
    nodes: list[Any] = list(world.server.store.all(NODES))
    free = {name_of(one): allocatable_of(one) - watcher.taken_on(name_of(one)) for one in nodes}
    for one in world.server.store.all(RESERVATIONS):
        if (one.get("status") or {}).get("phase", "Pending") == "Pending":
            size = int(one["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"][GPU])
            found += [f"the reservation fits on {name}" for name, n in free.items() if n >= size]
    found += _judge_gang(world, watcher, free)
    for pod in world.pods():
        if not node_of(pod) and not is_terminating(pod) and not gang_of(pod):
            fits = [name for name, n in free.items() if n >= gpus_of(pod)]
            found += [f"{name_of(pod)} fits on {name}" for name in fits]
    return found


def _judge_gang(world: World, watcher: _Watcher, free: dict[str, int]) -> list[str]:
    """Judge whether all waiting members, which are equal, fit where there is room for them."""
    waiting = [pod for pod in world.pods() if gang_of(pod) and not node_of(pod)]
    if not waiting:
        return []
    held: dict[str, int] = dict.fromkeys(free, 0)
    for one in world.server.store.all(RESERVATIONS):
        for name in free:
            held[name] += watcher.held_by(one, name)
    places = sum((n + held[name]) // gpus_of(waiting[0]) for name, n in free.items())
    return [f"{len(waiting)} members fit in {places} places"] if places >= len(waiting) else []
