"""Why devices keep a pod from being placed on any node."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from koord.core.device.request import InvalidRequest
from koord.core.reasons import PodReason
from koord.core.text import listed


@dataclass(frozen=True, slots=True)
class InvalidDeviceRequest(PodReason):
    """The device resources of a pod are no valid request."""

    code: ClassVar = "InvalidDeviceRequest"
    problem: InvalidRequest

    def _text(self) -> str:
        return f"{self.pod}: {self.problem.describe()}"

    def _advice(self) -> Iterable[str]:
        asked = listed(f"{key}: {amount}" for key, amount in self.problem.amounts)
        nearest = listed(f"{key}: {amount}" for key, amount in self.problem.nearest)
        if nearest:
            yield f"Request {nearest} instead of {asked}, for example."


@dataclass(frozen=True, slots=True)
class InvalidDeviceAnnotation(PodReason):
    """Annotations of a pod about its devices cannot be read: (field, what is wrong)."""

    code: ClassVar = "InvalidDeviceAnnotation"
    problems: tuple[tuple[str, str], ...]

    def _text(self) -> str:
        return f"{self.pod}: {listed(f'{field} {problem}' for field, problem in self.problems)}"

    def _advice(self) -> Iterable[str]:
        yield "Correct the annotation in the template of the pods, and create them again."
