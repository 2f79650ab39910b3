"""What holds for queues where no quota says anything else: the section ``queue``."""

from collections.abc import Iterable

from typing_extensions import override

from koord.api.queue import QueueSpec, values_of
from koord.core.queue.plugin import QueueOptions
from koord.domains.section import Section


class QueueDefaults(QueueSpec, Section):
    """Settings of queues, as in the annotation `operators.koordinator.sh/queue` of quotas.

    What a quota says, or one above it, goes before.
    """

    stamped_users: bool = False
    """Whether users are those of the annotation `operators.koordinator.sh/user`, and not their
    namespaces: only where a policy on admission writes it on all pods."""

    @override
    def plan_options(self) -> Iterable[object]:
        values = {name: n for name, n in values_of(self).items() if name in QueueSpec.model_fields}
        yield QueueOptions(values, self.stamped_users)
