"""Entries for nodes in a configuration of which only the first that selects a node counts.

An entry that can select a node of an earlier one is a mistake that nobody would see: it is refused,
and named with the earlier one. What the entries say is not known here.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from koord.api.parse import Problem, cut
from koord.api.quotaprofile import NodeSelector
from koord.core.model.selectors import can_select_alike
from koord.kube.translate.node_affinity import translate_selector


class EntryForNodes(Protocol):
    """An entry, and the nodes that it is for."""

    @property
    def name(self) -> str | None: ...
    @property
    def node_selector(self) -> NodeSelector: ...


def find_overlaps(field: str, entries: Sequence[EntryForNodes]) -> Iterator[Problem]:
    """Yield entries without a selector, and those that can select a node of an earlier one.

    ``field`` is the list of the entries; fields of problems begin with it.
    """
    selectors = [translate_selector(entry.node_selector) for entry in entries]
    for index, (entry, selector) in enumerate(zip(entries, selectors, strict=True)):
        where = f"{field}[{index}].nodeSelector"
        if not selector:
            yield Problem(where, "", "must have matchLabels or matchExpressions")
            continue
        for earlier, before in enumerate(selectors[:index]):
            if before and can_select_alike(selector, before):
                text = (
                    f"can select a node that {field}[{earlier}] selects, too, of which only "
                    "the first would count; make the selectors exclude each other"
                )
                yield Problem(where, cut(entry.name or ""), text)
                break
