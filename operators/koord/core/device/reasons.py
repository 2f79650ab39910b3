"""Why devices keep a pod from being placed on any node."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from koord.core.device.request import InvalidRequest
from koord.core.device.vendors import ISOLATION_LABEL
from koord.core.model.reasons import PodReason
from koord.core.model.text import MAX_QUOTED, cut, listed


@dataclass(frozen=True, slots=True)
class InvalidDeviceRequest(PodReason):
    """The device resources of a pod are no valid request."""

    code: ClassVar = "InvalidDeviceRequest"
    problem: InvalidRequest

    def _text(self) -> str:
        amounts = listed(f"{key}: {amount}" for key, amount in self.problem.amounts)
        rejected = "".join(f"; {problem}" for problem in self.problem.problems)
        return f"{self.pod}: {self.problem.describe()} ({amounts}){rejected}"

    def _advice(self) -> Iterable[str]:
        nearest = listed(f"{key}: {amount}" for key, amount in self.problem.nearest)
        if nearest:
            yield f"Request {nearest} instead, for example."


@dataclass(frozen=True, slots=True)
class IsolationAbsent(PodReason):
    """A pod shares a GPU, and nothing keeps it to its part."""

    code: ClassVar = "IsolationAbsent"

    def _text(self) -> str:
        return (
            f"{self.pod} shares a GPU without isolation: nothing keeps it to the memory and cores "
            "that it requests"
        )

    def _advice(self) -> Iterable[str]:
        yield f"Add the label {ISOLATION_LABEL} if nodes have a provider, or request whole GPUs."


@dataclass(frozen=True, slots=True)
class NodeLocked(PodReason):
    """The device plugin of the planned node serves another pod, or its lock cannot be read."""

    code: ClassVar = "NodeLocked"
    node: str
    holder: str
    """The other pod; "" if the lock does not say."""
    lock: str = ""

    def _text(self) -> str:
        text = f'{self.pod}: node "{self.node}" has been locked: its device plugin serves '
        text += self.holder or "another pod"
        return f'{text} ("{cut(self.lock, MAX_QUOTED)}")' if self.lock else text

    def _advice(self) -> Iterable[str]:
        yield "Wait: pods with devices of this vendor start one after the other on each node."


@dataclass(frozen=True, slots=True)
class InvalidDeviceAnnotation(PodReason):
    """Annotations of a pod about its devices cannot be read: (field, what is wrong)."""

    code: ClassVar = "InvalidDeviceAnnotation"
    problems: tuple[tuple[str, str], ...]

    def _text(self) -> str:
        return f"{self.pod}: {listed(f'{field} {problem}' for field, problem in self.problems)}"

    def _advice(self) -> Iterable[str]:
        yield "Correct the annotation in the template of the pods, and create them again."
