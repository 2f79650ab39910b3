"""Failover of two replicas under load: the leader is stopped, killed, paused or cut off.

In every case each pod is bound once, no node exceeds its capacity, gangs are bound whole or not at
all, and the follower takes over within the time that the Lease allows.
"""

import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.operators.conftest import Cluster, read_lease
from tests.operators.judge import count_bindings, find_faults, find_torn_gangs
from tests.operators.load import GPUS, MEMBERS, NODES, Load
from tests.operators.replicas import Pair, Replica
from tests.support.figures import write_figures
from tests.support.tcp_proxy import TcpProxy, open_line

from koord.kube.election import LEASE_SECONDS
from koord_sandbox import Sandbox

TAKES_OVER_WITHIN = LEASE_SECONDS + 5.0
LEADERSHIP_LOST = 3

Fault = Callable[["WiredReplica", Callable[[], None]], None]
"""Applied to a leader; calls the function when the follower should have taken over."""


class WiredReplica(Replica):
    """A replica with a TCP proxy of its own, which can be cut."""

    def __init__(self, box: Sandbox, directory: Path, line: TcpProxy) -> None:
        super().__init__(box, directory, f"https://127.0.0.1:{line.port}")
        self.line = line


class LoadedPair(Pair[WiredReplica]):
    """Two replicas under load."""

    def __init__(self, cluster: Cluster, replicas: list[WiredReplica], load: Load) -> None:
        super().__init__(cluster, replicas)
        self.load = load

    def wait_until_it_works(self) -> None:
        """Wait until new gangs are bound."""
        before = len(self.load.bound)
        self.expect(lambda: len(self.load.bound) >= before + 2 * MEMBERS, "gangs are bound")

    def judge(self) -> int:
        """Fail for violated invariants; return the number of bindings."""
        self.load.settle()
        self.expect(lambda: not find_torn_gangs(self.cluster), "no gang is torn")
        assert self.load.faults + find_faults(self.cluster) == []
        return count_bindings(self.cluster).total()


@pytest.fixture
def pair(quiet_cluster: Cluster, operators_box: Sandbox, tmp_path: Path) -> Iterator[LoadedPair]:
    """Two running replicas, with a synced follower."""
    quiet_cluster.add_nodes(NODES, GPUS)
    with ExitStack() as stack:
        port = operators_box.record.server_port
        lines = [stack.enter_context(open_line(port)) for _ in range(2)]
        directories = [tmp_path / name for name in ("first", "second")]
        replicas = [
            WiredReplica(operators_box, directory, line)
            for directory, line in zip(directories, lines, strict=True)
        ]
        for one in replicas:
            one.start()
            stack.callback(end, one)
        pair = LoadedPair(quiet_cluster, replicas, stack.enter_context(Load(quiet_cluster)))
        pair.find_leader()
        pair.wait_until_it_works()
        yield pair


def end(replica: WiredReplica) -> None:
    if replica.is_running():
        replica.send(signal.SIGCONT)
        replica.stop()


def let_go(leader: WiredReplica, has_taken_over: Callable[[], None]) -> None:
    assert leader.stop() == 0
    has_taken_over()


def kill(leader: WiredReplica, has_taken_over: Callable[[], None]) -> None:
    leader.kill(keeps_lease=True)
    has_taken_over()


def pause(leader: WiredReplica, has_taken_over: Callable[[], None]) -> None:
    leader.send(signal.SIGSTOP)
    has_taken_over()
    leader.send(signal.SIGCONT)
    assert leader.wait() == LEADERSHIP_LOST


def cut_off(leader: WiredReplica, has_taken_over: Callable[[], None]) -> None:
    leader.line.cut()
    has_taken_over()
    # Its fence is closed, and it keeps running until it observes the new leader.
    assert leader.is_running()
    leader.line.mend()
    assert leader.wait() == LEADERSHIP_LOST


FAULTS: tuple[Fault, ...] = (let_go, kill, pause, cut_off)


def apply_fault(pair: LoadedPair, fault: Fault) -> float:
    """Apply a fault to the leader; return the seconds without any placement."""
    leader, follower = pair.find_leader()
    took: list[float] = []

    def has_taken_over() -> None:
        pair.expect(lambda: follower.leads, f"{fault.__name__}: the other one leads")
        before = len(pair.load.bound)
        pair.expect(lambda: len(pair.load.bound) > before, "the other one places")
        took.append(time.monotonic() - began)
        pair.wait_until_it_works()

    began = time.monotonic()
    fault(leader, has_taken_over)
    return took[0]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_follower_takes_over(pair: LoadedPair) -> None:
    lose_the_follower(pair)
    for fault in FAULTS:
        leader, _ = pair.find_leader()
        apply_fault(pair, fault)
        leader.start()
    assert pair.judge() > 0


def lose_the_follower(pair: LoadedPair) -> None:
    """Disturb and kill the follower: the leader must not be affected."""
    leader, follower = pair.find_leader()
    holder = read_lease(pair.cluster.box)["holderIdentity"]
    follower.line.cut()
    pair.wait_until_it_works()
    follower.line.mend()
    follower.kill(keeps_lease=True)
    pair.wait_until_it_works()
    assert read_lease(pair.cluster.box)["holderIdentity"] == holder
    assert leader.is_running()
    follower.start()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(3))
def test_kills(pair: LoadedPair, part: int) -> None:
    """Needs a quiet machine, because times are checked."""
    check_faults(pair, f"failover-kills-{part}", [kill] * 17)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(5))
def test_split_brains(pair: LoadedPair, part: int) -> None:
    """Split brain, twenty times in each part."""
    check_faults(pair, f"failover-split-brain-{part}", [pause, cut_off] * 10)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_faults_in_any_order(pair: LoadedPair) -> None:
    choose = random.Random(7)  # noqa: S311 - repeatable
    check_faults(pair, "failover-any", choose.choices(FAULTS, k=16))


def check_faults(pair: LoadedPair, name: str, faults: Sequence[Fault]) -> None:
    took: list[tuple[float, str]] = []
    for fault in faults:
        leader, _ = pair.find_leader()
        took.append((apply_fault(pair, fault), fault.__name__))
        write_figures(name, {"placing_again_seconds": took})
        leader.start()
    bindings = pair.judge()
    write_figures(name, {"placing_again_seconds": took, "bindings": bindings, "faults": []})
    assert max(took)[0] <= TAKES_OVER_WITHIN, took
