"""What an asker may see of the one object of a question: by the rights to get it, and its events.

Whoever may get pods of a namespace and not list them sees what she names, and no other name. Knows
no answer.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from koord.answers.redaction import Sight
from koord.runtime.reviews import ResourceRight
from koord.see.access import Asker
from koord.see.rights import is_name

_STORY: Final = "Story"


async def see_object(asker: Asker, sight: Sight, answer: str, parts: Mapping[str, str]) -> Sight:
    """Return what may be seen for an answer about the object that ``parts`` of its path name.

    Raises ``HTTPServiceUnavailable``.
    """
    kind, namespace, name = (parts.get(part, "") for part in ("kind", "namespace", "name"))
    if kind not in {"pod", "podgroup"} or not (is_name(namespace) and is_name(name)):
        return sight
    if not sight.sees(namespace):
        by_name = name if kind == "pod" else ""  # whose pods are asked for is not known by name
        if not await asker.may(ResourceRight("get", "", "pods", namespace, by_name)):
            return sight
        sight = replace(sight, units=frozenset({f"{namespace}/{name}"}))
    # Events quote whoever writes them.
    if answer == _STORY and not await asker.may(ResourceRight("list", "", "events", namespace)):
        sight = replace(sight, events=False)
    return sight
