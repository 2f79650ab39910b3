"""Two replicas of the operators: a leader and a follower."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from tests.operators.conftest import Cluster, Operators, read_lease
from typing_extensions import override

from koord_sandbox import Sandbox

PATIENCE_SECONDS = 90.0
R = TypeVar("R", bound="Replica")


class Replica(Operators):
    """One of two processes; it reaches the API server at its own address."""

    def __init__(self, box: Sandbox, directory: Path, server: str) -> None:
        directory.mkdir()
        shipped = box.kubeconfig_for("koord-system", "koord-operators").read_text()
        kubeconfig = directory / "kubeconfig"
        kubeconfig.write_text(shipped.replace(box.server, server))
        super().__init__(box, directory, kubeconfig)
        self._starts = 0

    @override
    def start(self) -> None:
        super().start()
        self._starts += 1

    @property
    def number(self) -> int:
        """Number of starts; if it is unchanged, the same process is still running."""
        return self._starts

    @property
    def is_synced(self) -> bool:
        return " synced " in self.read_log()

    @property
    def leads(self) -> bool:
        """Whether it holds the Lease."""
        holder = read_lease(self.box).get("holderIdentity", "")
        return bool(holder) and f"identity={holder}" in self.read_log()


class Pair(Generic[R]):
    """Two replicas and their cluster."""

    def __init__(self, cluster: Cluster, replicas: Sequence[R]) -> None:
        self.cluster = cluster
        self.replicas = replicas

    def find_leader(self) -> tuple[R, R]:
        """Return leader and follower, once both are synced."""
        self.expect(lambda: all(replica.is_synced for replica in self.replicas), "both follow")
        self.expect(lambda: any(replica.leads for replica in self.replicas), "one leads")
        first, second = self.replicas
        return (first, second) if first.leads else (second, first)

    def expect(self, is_true: Callable[[], bool], what: str) -> float:
        """Wait until ``is_true`` returns true; return how long it took, in seconds.

        The limit is generous, for loaded machines.
        """
        began = time.monotonic()
        while not is_true():
            if time.monotonic() > began + PATIENCE_SECONDS:
                logs = (replica.log.read_text()[-3000:] for replica in self.replicas)
                raise AssertionError("\n\n".join([f"not seen: {what}", *logs]))
            time.sleep(0.05)
        return time.monotonic() - began
