"""One world at a time on a real API server: created, evaluated, compared, deleted."""

import json
import time
from dataclasses import dataclass, field

from benchmarks.parity.cases import Maker, Object, World
from benchmarks.parity.mutants import MUTANTS, count_found_out
from benchmarks.parity.ours import Feasible, Sight, find_feasible, read_sight
from benchmarks.parity.scheduler import Extender
from koord_sandbox.client import AdminClient

SETTLE_SECONDS = 1.0
PATIENCE_SECONDS = 60.0
ATTEMPTS = 3


@dataclass(slots=True)
class Tally:
    """The compared pairs of pod and node, and the mutants that were detected."""

    pods: int = 0
    asked_again: int = 0
    pairs: int = 0
    feasible: int = 0
    differences: list[str] = field(default_factory=list)
    found_out: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MUTANTS, 0))

    @property
    def unnoticed(self) -> list[str]:
        """Mutants that no pod has detected."""
        return [name for name, pods in self.found_out.items() if not pods]


class Round:
    """One world of a seed."""

    def __init__(self, client: AdminClient, extender: Extender, seed: int) -> None:
        self._client = client
        self._extender = extender
        self._maker = Maker(seed, f"s{seed}")
        self._seed = seed

    def run(self, tally: Tally, subjects: int, *, with_mutants: bool) -> None:
        """Compare ``subjects`` pods of the world."""
        world = self._maker.world(subjects)
        self._create_world(world)
        time.sleep(SETTLE_SECONDS)
        theirs, sight = self._ask(world.subjects)
        mine = find_feasible(sight)
        wrong = [pod for pod in world.subjects if theirs[_name(pod)] != mine[_name(pod)]]
        for attempt in range(1, ATTEMPTS):
            if not wrong:
                break
            # kube-scheduler's copy lags behind: objects that it had not seen yet.
            time.sleep(SETTLE_SECONDS * attempt)
            tally.asked_again += len(wrong)
            again, seen = self._ask(wrong)
            theirs |= again
            mine |= find_feasible(seen)
            wrong = [pod for pod in wrong if theirs[_name(pod)] != mine[_name(pod)]]
        self._delete_world(world)
        tally.pods += len(world.subjects)
        tally.pairs += len(world.subjects) * len(world.nodes)
        tally.feasible += sum(map(len, theirs.values()))
        tally.differences += [self._describe(pod, theirs, mine) for pod in wrong]
        if with_mutants:
            for name in MUTANTS:
                tally.found_out[name] += count_found_out(name, sight, theirs)

    def _describe(self, pod: Object, theirs: Feasible, mine: Feasible) -> str:
        name = _name(pod)
        return (
            f"seed {self._seed}, pod {name}: only for kube-scheduler "
            f"{sorted(theirs[name] - mine[name])}, only for us "
            f"{sorted(mine[name] - theirs[name])}: {json.dumps(pod)}"
        )

    def _create_world(self, world: World) -> None:
        for space in self._maker.spaces():
            self._client.create("/api/v1/namespaces", space)
        for node in world.nodes:
            self._create_node(node)
        for volume in world.volumes:
            self._client.create("/api/v1/persistentvolumes", volume)
        for claim in world.claims:
            self._client.create(_path(claim, "persistentvolumeclaims"), claim)
        for pod in world.residents:
            self._client.create(_path(pod, "pods"), pod)
            if pod["metadata"].get("finalizers"):
                self._client.delete(f"{_path(pod, 'pods')}/{_name(pod)}?gracePeriodSeconds=0")

    def _create_node(self, node: Object) -> None:
        created = self._client.create("/api/v1/nodes", node)
        taints = node["spec"]["taints"]
        if created["spec"].get("taints") != taints:
            # Admission adds the not-ready taint.
            path = f"/api/v1/nodes/{_name(node)}"
            self._client.patch(path, {"spec": {"taints": taints}})

    def _ask(self, pods: list[Object]) -> tuple[Feasible, Sight]:
        """Create pods, learn kube-scheduler's answer for each, delete them."""
        path = _path(pods[0], "pods")
        uids = {_name(pod): self._client.create(path, pod)["metadata"]["uid"] for pod in pods}
        answers = self._await_answers(path, uids)
        stored = [one for one in self._client.get(path)["items"] if _name(one) in uids]
        sight = read_sight(self._client, stored)
        for name in uids:
            self._client.delete(f"{path}/{name}?gracePeriodSeconds=0")
        return answers, sight

    def _await_answers(self, path: str, uids: dict[str, str]) -> Feasible:
        deadline = time.monotonic() + PATIENCE_SECONDS
        answers: Feasible = {}
        while len(answers) < len(uids):
            if time.monotonic() > deadline:
                missing = sorted(set(uids) - set(answers))
                raise RuntimeError(f"kube-scheduler said nothing of {missing[:5]}")
            time.sleep(0.3)
            refused = self._refused(path)
            for name, uid in uids.items():
                if uid in self._extender.asked:
                    answers[name] = self._extender.asked[uid]
                elif uid in refused:
                    answers[name] = frozenset()
        return answers

    def _refused(self, path: str) -> set[str]:
        """Return the uids of pods for which no node passed the filters."""
        return {
            item["metadata"]["uid"]
            for item in self._client.get(path)["items"]
            for one in item["status"].get("conditions", ())
            if one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable"
        }

    def _delete_world(self, world: World) -> None:
        for pod in world.residents:
            path = f"{_path(pod, 'pods')}/{_name(pod)}"
            if pod["metadata"].get("finalizers"):
                self._client.patch(path, {"metadata": {"finalizers": None}})
            else:
                self._client.delete(f"{path}?gracePeriodSeconds=0")
        for node in world.nodes:
            self._client.delete(f"/api/v1/nodes/{_name(node)}")


def _name(item: Object) -> str:
    name: str = item["metadata"]["name"]
    return name


def _path(item: Object, plural: str) -> str:
    return f"/api/v1/namespaces/{item['metadata']['namespace']}/{plural}"
