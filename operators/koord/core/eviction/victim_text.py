"""The message of the condition that marks a victim, and what is read back from it.

The owner of a pod can write its annotations, and can fill them so that nothing fits any more. The
status is not the owner's. So the message alone says for whom a pod goes, also to the next process.
"""

import re
from typing import Final

from koord.core.model.pods import PreemptedBy

_FORM: Final = re.compile(
    r"(?P<preemptor>\S+) \(priority -?\d+\) needs its place \(plan (?P<plan>\S+)\)"
    r"(?:.*, triggerPod: (?P<pod>\S+)\))?"
)


def write_victim_text(
    by: PreemptedBy, priority: int, scheduler: str, *, compat: bool = False
) -> str:
    """Return the message; with ``compat`` Koordinator's words follow."""
    text = f"{by.preemptor} (priority {priority}) needs its place (plan {by.plan_id})"
    if not compat:
        return text
    return (
        f"{text} ({scheduler}: preempting to accommodate higher priority pods, preemptor: "
        f"{by.preemptor}, triggerPod: {by.pod})"
    )


def read_victim_text(text: str) -> PreemptedBy | None:
    """Return for whom a marked pod goes; None for another text.

    The first pod is "" unless it was written with ``compat``.
    """
    match = _FORM.match(text)
    if match is None:
        return None
    return PreemptedBy(match["plan"], match["preemptor"], match["pod"] or "")
