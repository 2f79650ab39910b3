"""What pods say about their turn in a queue."""

from collections.abc import Hashable, Mapping

from typing_extensions import override

from koord.api.keys import operators
from koord.core.queue.plugin import HELD
from koord.core.queue.reasons import NAME
from koord.kube.kind import PodReader


class QueuePodReader(PodReader):
    """Reads whether the owner of a pod holds it back."""

    name = NAME

    @override
    def read_hints(
        self, annotations: Mapping[str, str], labels: Mapping[str, str], priority: int
    ) -> Hashable | None:
        return HELD if annotations.get(operators.QUEUE_HOLD) == "true" else None
