"""Reads edits that are to be tried: a list in a file, or options of the command line."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from koord.answers.edits import (
    MOST_EDITS,
    AddNodes,
    Cordon,
    Drain,
    Edit,
    EditError,
    RemoveNodes,
)
from koord.api.untyped import to_list
from koord.cli.common import ExitCode, fail
from koord.cli.queries import parse_target
from koord.core.engine.state import ClusterState
from koord.see.edit_forms import EditForms
from koord.see.manifests import ServerDefaults

EDITS: Final = "edits"
"""The key of a document that lists edits."""


@dataclass(frozen=True, slots=True)
class TypedEdits:
    """Edits by options; applied in the order of these fields, manifests last."""

    delete: tuple[str, ...] = ()
    cordon: tuple[str, ...] = ()
    uncordon: tuple[str, ...] = ()
    drain: tuple[str, ...] = ()
    remove_nodes: tuple[str, ...] = ()
    add_nodes: tuple[str, ...] = ()


class EditReader:
    """Makes edits of what was written; names are looked up in the state."""

    def __init__(self, state: ClusterState, defaults: ServerDefaults) -> None:
        self._defaults = defaults
        self._forms = EditForms(state, self._find, lambda: defaults)

    def read(self, typed: TypedEdits, documents: Sequence[Any]) -> tuple[Edit, ...]:
        """Return all edits in order; ends the command if one cannot be read or there are none."""
        lists = [each for each in documents if isinstance(each, dict) and EDITS in each]
        manifests = [each for each in documents if each not in lists]
        try:
            edits = [*self._read_typed(typed)]
            for document in lists:
                for edit in to_list(document.get(EDITS)):
                    edits += self._forms.read(edit)
            if manifests:
                edits.append(self._forms.submit(manifests))
        except EditError as error:
            fail(str(error), ExitCode.USAGE)
        if not edits:
            fail("give a file with -f, or an edit such as --drain NODE", ExitCode.USAGE)
        if len(edits) > MOST_EDITS:
            fail(f"these are {len(edits)} edits, more than {MOST_EDITS}", ExitCode.USAGE)
        return tuple(edits)

    def _read_typed(self, typed: TypedEdits) -> Iterator[Edit]:
        for ref in typed.delete:
            yield from self._forms.delete(ref)
        for nodes, make in (
            (typed.cordon, Cordon),
            (typed.uncordon, _uncordon),
            (typed.drain, Drain),
            (typed.remove_nodes, RemoveNodes),
        ):
            if nodes:
                yield make(nodes)
        for text in typed.add_nodes:
            count, _, like = text.partition("x")
            if not count.isdecimal() or not like:
                raise EditError(f"{text!r} is no number of nodes: write 2xNODE")
            yield AddNodes(like, int(count))

    def _find(self, ref: str) -> tuple[str, str, str]:
        kind, namespace, name = parse_target(ref, "", "")
        return kind, namespace or self._defaults.namespace, name


def _uncordon(nodes: tuple[str, ...]) -> Cordon:
    return Cordon(nodes, is_on=False)
