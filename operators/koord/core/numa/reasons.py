"""Why NUMA nodes and CPUs keep a pod from being placed on any node."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from koord.core.model.reasons import PodReason
from koord.core.model.text import listed


@dataclass(frozen=True, slots=True)
class InvalidNumaAnnotation(PodReason):
    """Annotations of a pod about NUMA nodes or CPUs cannot be read: (field, what is wrong)."""

    code: ClassVar = "InvalidNUMAAnnotation"
    problems: tuple[tuple[str, str], ...]

    def _text(self) -> str:
        return f"{self.pod}: {listed(f'{field} {problem}' for field, problem in self.problems)}"

    def _advice(self) -> Iterable[str]:
        yield "Correct the annotation in the template of the pods, and create them again."
