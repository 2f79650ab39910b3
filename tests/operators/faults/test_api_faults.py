"""Faults of the API server, injected by a proxy, while gangs are created and deleted.

Both replicas use the same proxy. Processes that end are restarted, as by a kubelet. Measured is the
time from the end of a fault to the next placement; the API objects must satisfy all invariants.
"""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import pytest
from aiohttp import web
from tests.operators.conftest import LEASE
from tests.operators.faults.conftest import ProxiedPair
from tests.operators.judge import count_bindings, find_faults, find_torn_gangs
from tests.operators.load import GPUS, NODES, Load
from tests.support.fault_proxy import Do, FaultProxy, is_watch
from tests.support.figures import write_figures

from koord.kube.election import LEASE_SECONDS
from koord_sandbox import Component

Fault = Callable[[ProxiedPair], None]

WITHIN = 10.0
NEW_ONES_WITHIN = LEASE_SECONDS + 5.0
"""If both replicas were restarted: a new process waits until the Lease expires."""
SILENT_WITHIN = 30.0
ENDLESS = 1 << 30


def is_call(request: web.Request) -> bool:
    return not is_watch(request)


def is_read(request: web.Request) -> bool:
    return request.method == "GET"


def is_write(request: web.Request) -> bool:
    return request.method != "GET"


def misbehave(
    pair: ProxiedPair,
    matches: Callable[[web.Request], bool],
    do: Do,
    *,
    drops: bool = False,
    **how: Any,
) -> None:
    """Plan a fault until it is healed; ``drops`` breaks open watches."""

    def plan(proxy: FaultProxy) -> None:
        proxy.plan(matches, do, times=ENDLESS, **how)
        if drops:
            proxy.drop_streams()

    pair.thread.do(plan)


def echo(pair: ProxiedPair) -> None:
    """Repeat every event half a second later."""
    pair.thread.do(lambda proxy: setattr(proxy, "echo_seconds", 0.5))


def break_streams(pair: ProxiedPair) -> None:
    pair.thread.do(FaultProxy.drop_streams)


def restart(pair: ProxiedPair, component: Component) -> None:
    pair.restart(component)


def answer(status: int, reason: str, **how: Any) -> dict[str, Any]:
    return {"do": Do.ANSWER, "status": status, "reason": reason, **how}


FAULTS: dict[str, Fault] = {
    "latency": partial(misbehave, matches=is_call, do=Do.DELAY, seconds=1.5),
    "409": partial(misbehave, matches=is_write, **answer(409, "Conflict")),
    "410": partial(misbehave, matches=is_read, drops=True, **answer(410, "Expired")),
    "429": partial(
        misbehave,
        matches=is_call,
        **answer(429, "TooManyRequests", headers={"Retry-After": "2"}),
    ),
    "500": partial(misbehave, matches=is_call, **answer(500, "InternalError")),
    "503": partial(misbehave, matches=lambda _: True, drops=True, **answer(503, "Unavailable")),
    "dropped-before": partial(misbehave, matches=is_call, do=Do.DROP),
    "dropped-after": partial(misbehave, matches=is_write, do=Do.LOSE_REPLY),
    "dropped-streams": break_streams,
    "echoes": echo,
    "apiserver-restart": partial(restart, component=Component.APISERVER),
    "etcd-restart": partial(restart, component=Component.ETCD),
}
OVER_AT_ONCE = {"dropped-streams", "apiserver-restart", "etcd-restart"}
"""Faults that are over immediately."""


@pytest.fixture
def load(pair: ProxiedPair) -> Iterator[Load]:
    """A running load, of which the first gangs are bound."""
    pair.cluster.add_nodes(NODES, GPUS)
    with Load(pair.cluster) as load:
        pair.expect(lambda: len(load.bound) > NODES, "gangs are bound")
        yield load


@dataclass(frozen=True)
class Outage:
    """Time without placements after some faults, and the replicas that survived them."""

    faults: list[str]
    lasted_seconds: float
    placing_again_seconds: float
    replicas_that_lived: int

    @property
    def is_soon(self) -> bool:
        within = WITHIN if self.replicas_that_lived else NEW_ONES_WITHIN
        return self.placing_again_seconds <= within


def apply_faults(pair: ProxiedPair, load: Load, kinds: list[str], seconds: float) -> Outage:
    """Apply faults for some seconds, and heal them."""
    before = [one.number for one in pair.replicas]
    for kind in kinds:
        FAULTS[kind](pair)
    is_over = set(kinds) <= OVER_AT_ONCE
    end = time.monotonic() + (0.0 if is_over else seconds)
    while time.monotonic() < end:
        pair.keep_running()
        time.sleep(0.2)
    pair.thread.do(FaultProxy.heal)
    pair.keep_running()
    lived = sum(one.number == number for one, number in zip(pair.replicas, before, strict=True))
    return Outage(kinds, seconds, place_again(pair, load), lived)


def place_again(pair: ProxiedPair, load: Load) -> float:
    before = len(load.bound)

    def has_placed() -> bool:
        pair.keep_running()
        return len(load.bound) > before

    return pair.expect(has_placed, "something is placed again")


def judge(pair: ProxiedPair, load: Load) -> dict[str, Any]:
    """Fail for violated invariants; return counts."""
    load.settle()
    pair.keep_running()
    pair.expect(lambda: not find_torn_gangs(pair.cluster), "no gang is torn")
    assert load.faults + find_faults(pair.cluster) == []
    return {"bindings": count_bindings(pair.cluster).total(), "pods": len(load.bound)}


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_some_faults(pair: ProxiedPair, load: Load) -> None:
    for name in ("dropped-after", "410", "echoes", "503"):
        apply_faults(pair, load, [name], 3.0)
    judge(pair, load)
    # Requests for the Lease went through the proxy.
    assert any(one.path == LEASE for one in pair.thread.proxy.seen)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seconds", [5.0, 20.0])
def test_every_fault(pair: ProxiedPair, load: Load, seconds: float) -> None:
    """A leader survives five seconds; after twenty it has lost the Lease."""
    name = f"api-faults-{seconds:.0f}s"
    check_faults(pair, load, name, [([kind], seconds) for kind in FAULTS])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_silent_watches(pair: ProxiedPair, load: Load) -> None:
    took = []
    for _ in range(3):
        pair.thread.do(FaultProxy.silence_streams)
        time.sleep(3.0)  # until writes in flight have arrived
        took.append(3.0 + place_again(pair, load))
        write_figures("api-faults-silence", {"placing_again_seconds": took})
    write_figures("api-faults-silence", {"placing_again_seconds": took, **judge(pair, load)})
    assert max(took) <= SILENT_WITHIN, took


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2])
def test_faults_at_random(pair: ProxiedPair, load: Load, seed: int) -> None:
    """Five minutes each."""
    choose = random.Random(seed)  # noqa: S311 - repeatable
    faults = []
    left = 250.0  # without the time to recover
    while left > 0:
        kinds = choose.sample(sorted(FAULTS), choose.choice([1, 1, 2, 3]))
        seconds = choose.uniform(1.0, 15.0)
        faults.append((kinds, seconds))
        left -= seconds
    check_faults(pair, load, f"api-faults-random-{seed}", faults)


def check_faults(
    pair: ProxiedPair, load: Load, name: str, faults: list[tuple[list[str], float]]
) -> None:
    outages: list[Outage] = []
    for kinds, seconds in faults:
        outages.append(apply_faults(pair, load, kinds, seconds))
        write_figures(name, {"faults": list(map(asdict, outages))})
    write_figures(name, {"faults": list(map(asdict, outages)), **judge(pair, load)})
    assert [one for one in outages if not one.is_soon] == []
