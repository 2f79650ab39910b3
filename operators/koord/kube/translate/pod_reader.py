"""What a domain reads of pods beyond their specs: hints of their owners, records of allocations.

The translator of pods asks every reader and knows none of them. A reader serves all pods and keeps
nothing; it must not know how pods are listed or written.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import ClassVar, TypeAlias

from koord.core.model.pods import Allocation, PodShape

Counted: TypeAlias = tuple[tuple[str, int], ...]
"""Amounts by resource, sorted."""


class PodReader:
    """The reader of one domain. Every method has a default that reads nothing."""

    name: ClassVar[str]
    """The plugin that the hints are for."""
    record: ClassVar[str] = ""
    """The annotation that the operators record an allocation in; empty for none."""

    def concerns(self, shape: PodShape) -> bool:  # noqa: ARG002 - for overriding
        """Whether hints matter for pods of a shape; asked once per shape."""
        return True

    def read_hints(
        self,
        annotations: Mapping[str, str],  # noqa: ARG002 - for overriding
        labels: Mapping[str, str],  # noqa: ARG002 - the same
        priority: int,  # noqa: ARG002 - the same
    ) -> Hashable | None:
        """Return what the owner of a pod says to the plugin, problems included; None: nothing."""
        return None

    def read_record(self, uid: str, text: str, hints: Hashable | None) -> Allocation:
        """Return the allocation that a record of a pod says. Raises a MALFORMED error."""
        raise NotImplementedError

    def replace_lost(self, uid: str, shape: PodShape) -> Allocation | None:  # noqa: ARG002 - the same
        """Return what counts for a pod whose record was removed or changed; None: nothing."""
        return None

    def count(
        self,
        shape: PodShape,  # noqa: ARG002 - the same
        hints: Hashable | None,  # noqa: ARG002 - the same
        allocations: Sequence[Allocation],  # noqa: ARG002 - the same
    ) -> Counted:
        """Return what quotas count for a pod if it is more than it requests; () if it is not."""
        return ()
