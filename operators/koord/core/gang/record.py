"""What is recorded on a member about the release it was part of.

The set of members released together is kept from the first release: a member whose binding failed
and that is placed again later keeps the record it has. A member that started alone has none.
"""

from collections.abc import Collection
from dataclasses import dataclass

from koord.core.gang.group import GroupId
from koord.core.pods import Pod


@dataclass(frozen=True, slots=True)
class BindRecord:
    """The group that a member was released with, and how many members were released together."""

    group: GroupId
    member_count: int


def make_bind_record(pod: Pod, group: GroupId, released: Collection[str]) -> BindRecord | None:
    """Return what to record on ``pod`` when the pods with these uids are released together."""
    before = pod.recorded
    if before is not None and before.group == group and before.member_count > 1:
        return BindRecord(group, before.member_count)
    if not group or len(released) < 2 or pod.uid not in released:
        return None
    return BindRecord(group, len(released))
