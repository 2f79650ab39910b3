"""Fuzzes the running process: creates objects as tenants could, and judges what is said of them.

``python -m tests.fuzz.process --objects 100000 --seed 1`` plays rounds of 5,000 on a sandbox of its
own. After each the leader must be the same, its log must have no error, every object must have a
node, a status or a reason, and an ordinary pod must be placed.
"""

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.fuzz.objects import KINDS, Made, ObjectMaker
from tests.operators.conftest import (
    SETTINGS,
    Cluster,
    Operators,
    install,
    make_node,
    make_pod,
    node_status,
    open_cluster,
    read_lease,
    wait_until_unprotected,
)

from koord.api.keys import operators
from koord_sandbox import Sandbox
from koord_sandbox.errors import SandboxApiError

ROUND = 5_000
_NAMES = re.compile(r'"[^"]*"')
THREADS = 8
NODES = 4
PAGE = 500
_BAD = re.compile(r"Traceback|^\S+ error |Left out an object", re.MULTILINE)


class Round:
    """Objects that are created together, judged and deleted."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.refused: Counter[str] = Counter()
        self.created: list[Made] = []
        self._untold: set[str] = set()
        """Paths with objects of which nothing was said when they were last listed."""
        self._cluster, self._client = cluster, cluster.box.client
        nodes = tuple(cluster.add_nodes(NODES))
        self._maker = ObjectMaker(seed, cluster.namespace, nodes[:2])
        cluster.expect(lambda: bool(self._leader()[0]), "the operators lead")
        self._before = self._leader()
        self._log_from = cluster.operators.log.stat().st_size

    def play(self, count: int) -> None:
        """Create objects; fail unless all is well."""
        with ThreadPoolExecutor(THREADS) as pool:
            for made in pool.map(self._create, self._maker.make(count)):
                self.created += [made] if made is not None else []
        self._untold = {made.path for made in self.created}
        self._expect(self._find_untold, "something is said of every object")
        self._place_ordinary()
        assert self._leader() == self._before, "the leader is the same"
        assert not self.problems(), self.problems()

    def problems(self) -> list[str]:
        """Return errors in the log of the operators."""
        with self._cluster.operators.log.open("rb") as log:
            log.seek(self._log_from)
            text = log.read().decode(errors="replace")
        return [text[found.start() : found.start() + 3000] for found in _BAD.finditer(text)][:3]

    def clear(self) -> None:
        of_cluster = [made for made in self.created if "/namespaces/" not in made.path]
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda made: self._delete(f"{made.path}/{made.name}"), of_cluster))
        for version, plural, is_in_namespace in KINDS.values():
            if is_in_namespace:
                root = "/api" if version == "v1" else "/apis"
                path = f"{root}/{version}/namespaces/{self._cluster.namespace}/{plural}"
                self._delete(f"{path}?gracePeriodSeconds=0")

    def _delete(self, path: str) -> None:
        try:
            self._client.delete(path)
        except SandboxApiError as error:
            if error.status != 404:
                raise

    def _create(self, made: Made) -> Made | None:
        try:
            self._client.create(made.path, made.body)
        except SandboxApiError as error:
            self.refused[f"{made.kind}: {_NAMES.sub('…', str(error))[:160]}"] += 1
            return None
        return made

    def _leader(self) -> tuple[str, int]:
        lease = read_lease(self._cluster.box)
        return lease.get("holderIdentity", ""), lease.get("leaseTransitions", 0)

    def _expect(self, find: Any, what: str) -> None:
        """Wait until nothing is found any more; fail if the operators end, or get no further."""
        began, fewest = time.monotonic(), len(self.created) + 1
        while left := find():
            now = time.monotonic()
            assert self._cluster.operators.is_running(), self.problems()
            if len(left) < fewest:
                fewest, deadline = len(left), now + self._cluster.patience
            elif now > deadline:
                raise AssertionError(
                    "\n".join([f"not {what}: {len(left)} left", *self.problems(), *left[:20]])
                )
            time.sleep(max(0.25, 3 * (now - began)))  # the API server has to write, too
            began = time.monotonic()

    def _find_untold(self) -> list[str]:
        """Return what has no node, no status and no reason; some are gone, as their owners are."""
        found = []
        for path in sorted(self._untold):
            is_told = _is_pod_told if path.endswith("/pods") else _has_status
            untold = [str(body)[:3000] for body in self._list(path) if not is_told(body)]
            if not untold:
                self._untold.discard(path)
            found += untold
        return found

    def _list(self, path: str) -> Iterator[dict[str, Any]]:
        after = ""
        while True:
            page = self._client.get(f"{path}?limit={PAGE}{after}")
            yield from page["items"]
            if not page["metadata"].get("continue"):
                return
            after = f"&continue={page['metadata']['continue']}"

    def _place_ordinary(self) -> None:
        """Place a pod of somebody else, on a node of its own."""
        owner, node = f"{self._cluster.namespace}-other", f"{self._cluster.namespace}-own"
        self._client.create("/api/v1/nodes", make_node(node, owner, 8))
        try:
            self._client.patch(f"/api/v1/nodes/{node}/status", node_status(8))
            body = make_pod(
                self._cluster.namespace, "ordinary", gpus=1, nodeSelector={"test": owner}
            )
            self._client.create(self._cluster.pods_path, body)
            self._cluster.expect_bound("ordinary")
        finally:
            self._client.delete(f"/api/v1/nodes/{node}")


def _is_pod_told(body: dict[str, Any]) -> bool:
    spec, status = body["spec"], body.get("status", {})
    gates = [gate["name"] for gate in spec.get("schedulingGates") or ()]
    if spec["schedulerName"] != operators.SCHEDULER_NAME and operators.PLACEMENT_GATE not in gates:
        return True
    placed = [one for one in status.get("conditions") or () if one["type"] == operators.PLACED]
    return bool(spec.get("nodeName")) or any(one.get("message") for one in placed)


def _has_status(body: dict[str, Any]) -> bool:
    status = body.get("status") or {}
    return bool(status.get("conditions") or status.get("phase"))


def play_rounds(counts: Iterable[int], seed: int) -> Iterator[Round]:
    """Play rounds on a sandbox of their own, without policies: everything reaches the operators."""
    with Sandbox() as box, tempfile.TemporaryDirectory() as folder:
        install(box)
        box.kubectl("delete", "validatingadmissionpolicybindings", "--all")
        wait_until_unprotected(box)
        running = Operators(box, Path(folder), settings=SETTINGS)
        running.start()
        try:
            for at, count in enumerate(counts):
                with open_cluster(box, running) as cluster:
                    one = Round(cluster, seed + at)
                    one.play(count)
                    one.clear()
                    yield one
        finally:
            running.end()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.process", description=__doc__)
    parser.add_argument("--objects", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    counts = [min(ROUND, options.objects - at) for at in range(0, options.objects, ROUND)]
    created, refused, began = 0, Counter[str](), time.monotonic()
    for at, one in enumerate(play_rounds(counts, options.seed)):
        created, refused = created + len(one.created), refused + one.refused
        took = time.monotonic() - began
        sys.stdout.write(f"seed {options.seed + at}: {created} created, {took:.0f} s\n")
        sys.stdout.flush()
    for what, count in refused.most_common(20):
        sys.stdout.write(f"refused {count} times: {what}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
