"""Objects that came and went leave nothing behind: neither what is remembered of them nor garbage.

What is remembered is counted by the attribute that remembers it, so a failure names the defect.
"""

import gc
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from types import FunctionType, MethodType
from typing import Any, Final

import pytest
from tests.model.objects import OTHER_SCHEDULER, PodPlan, make_pod_group
from tests.model.quotas import PATH, make_quota
from tests.model.world import World, open_world

from koord.caches import BoundedCache
from koord.core.engine.cycle import Cycle

_ROUNDS: Final = 8
_BOUNDED: Final = {"Column.numbers", "Column.values"}
"""Values of labels, at most a few times as many as rows."""


def test_objects_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("koord.kube.events.MAX_REMEMBERED", 4)
    monkeypatch.setattr("koord.core.quota.cache.MOST_STALE", 4)
    with open_world() as world:
        world.start()
        churn(world, range(_ROUNDS))
        before = count_entries(world.parts)
        churn(world, range(_ROUNDS, 2 * _ROUNDS))
        after = count_entries(world.parts)
    grown = {where for where, count in after.items() if count >= before[where] + _ROUNDS}
    assert grown <= _BOUNDED
    assert before["StatusWriter._written"] > 0


def test_planning_leaves_no_garbage() -> None:
    """A cycle copies a table of all nodes: many that wait for collection are much memory."""
    with open_world() as world:
        world.start()
        churn(world, range(1))
        gc.collect()
        gc.disable()
        try:
            before = count_cycles()
            churn(world, range(1, 3))
            assert count_cycles() == before
        finally:
            gc.enable()


def churn(world: World, numbers: range) -> None:
    """Let objects with names that nothing had before come, wait or start, and go."""
    for number in numbers:
        node, quota = f"node-{number}", f"quota-{number}"
        gangs = {f"small-{number}": 2, f"large-{number}": 80}
        pods = [
            PodPlan(f"{name}-{at}", gpus, gang=name, quota=quota)
            for name, gpus in gangs.items()
            for at in range(2)
        ]
        pods.append(PodPlan(f"single-{number}", 1, gated=False, quota=quota))
        pods.append(PodPlan(f"waiting-{number}", 9, zone=node, quota=quota))
        pods.append(PodPlan(f"pinned-{number}", 1, scheduler=OTHER_SCHEDULER))
        world.request("POST", PATH, make_quota(quota, 0, 80, {}))
        world.add_node(node, zone=node)
        for name in gangs:
            world.put_pod_group(make_pod_group(name, 2))
        for pod in pods:
            world.create_pod(pod)
        world.advance(15.0)
        for pod in pods:
            world.delete_pod(pod.name)
        for name in gangs:
            world.delete_pod_group(name)
        world.advance(3.0)
        world.request("DELETE", f"{PATH}/{quota}")
        world.remove_node(node)
        world.advance(15.0)


def count_cycles() -> int:
    return sum(isinstance(one, Cycle) for one in gc.get_objects())


def count_entries(root: object) -> Counter[str]:
    """Return ``Class.attribute`` -> entries of all containers there, for all that is reachable.

    Caches that are bounded in bytes are left out.
    """
    found: Counter[str] = Counter()
    seen: set[int] = set()
    waiting: deque[tuple[str, object]] = deque([("", root)])
    while waiting:
        where, one = waiting.popleft()
        if id(one) in seen or isinstance(one, BoundedCache):
            continue
        seen.add(id(one))
        if isinstance(one, Mapping | list | tuple | set | frozenset | deque):
            found[where] += len(one)
            inner = [*one.keys(), *one.values()] if isinstance(one, Mapping) else list(one)
            waiting.extend((f"{where}[]", each) for each in inner)
        else:
            waiting.extend(_parts_of(one))
    return found


def _parts_of(one: object) -> Iterator[tuple[str, Any]]:
    """Yield what an object of the operators refers to."""
    if isinstance(one, MethodType):
        yield "", one.__self__
    elif isinstance(one, FunctionType):
        for cell in one.__closure__ or ():
            yield one.__qualname__, cell.cell_contents
    elif type(one).__module__.startswith("koord."):
        kind = type(one)
        slots = (name for base in kind.__mro__ for name in getattr(base, "__slots__", ()))
        for name in {**getattr(one, "__dict__", {}), **dict.fromkeys(slots)}:
            if hasattr(one, name):
                yield f"{kind.__name__}.{name}", getattr(one, name)
