"""Reads edits that are to be tried: a list in a file, or options of the command line."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from koord.answers.edits import (
    MOST_EDITS,
    AddNodes,
    Cordon,
    Delete,
    Drain,
    Edit,
    EditError,
    RemoveNodes,
    SetMinMember,
    SetPriority,
    SetQuota,
    Submit,
)
from koord.answers.envelope import AnswerGap, GapCause
from koord.api.quantity import InvalidQuantityError
from koord.api.untyped import to_list, to_map
from koord.cli.common import ExitCode, fail
from koord.cli.manifests import ServerDefaults, make_job
from koord.cli.queries import parse_target
from koord.core.engine.state import ClusterState
from koord.core.model.text import suggest
from koord.core.quota.model import QuotaSpec
from koord.kube.translate.amounts import parse_amount

DEFAULTS_UNSEEN: Final = AnswerGap(
    "defaults, policies and webhooks",
    GapCause.NOT_STORED,
    "what the API server would add to a manifest, or refuse",
)
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
        self._state = state
        self._defaults = defaults
        self._documents = 0
        self._forms: Final[Mapping[str, Callable[[Mapping[str, Any]], Iterator[Edit]]]] = {
            "submit": self._read_submit,
            "delete": lambda edit: self._delete(str(edit.get("ref", ""))),
            "patch": self._read_patch,
            "cordon": lambda edit: iter((Cordon(self._read_nodes(edit)),)),
            "uncordon": lambda edit: iter((Cordon(self._read_nodes(edit), is_on=False),)),
            "drain": lambda edit: iter((Drain(self._read_nodes(edit)),)),
            "removeNodes": lambda edit: iter((RemoveNodes(self._read_nodes(edit)),)),
            "addNodes": _read_add_nodes,
        }

    def read(self, typed: TypedEdits, documents: Sequence[Any]) -> tuple[Edit, ...]:
        """Return all edits in order; ends the command if one cannot be read or there are none."""
        lists = [each for each in documents if isinstance(each, dict) and EDITS in each]
        manifests = [each for each in documents if each not in lists]
        try:
            edits = [*self._read_typed(typed)]
            for document in lists:
                for edit in to_list(document.get(EDITS)):
                    edits += self._read_edit(edit)
            if manifests:
                edits.append(self._submit(manifests))
        except EditError as error:
            fail(str(error), ExitCode.USAGE)
        if not edits:
            fail("give a file with -f, or an edit such as --drain NODE", ExitCode.USAGE)
        if len(edits) > MOST_EDITS:
            fail(f"these are {len(edits)} edits, more than {MOST_EDITS}", ExitCode.USAGE)
        return tuple(edits)

    def _read_typed(self, typed: TypedEdits) -> Iterator[Edit]:
        for ref in typed.delete:
            yield from self._delete(ref)
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

    def _read_edit(self, edit: Any) -> Iterator[Edit]:
        if not isinstance(edit, dict) or len(edit) != 1:
            raise EditError("each edit is one key with its settings, such as drain: {nodes: [n1]}")
        ((name, settings),) = edit.items()
        if name not in self._forms:
            raise EditError(f"there is no edit {name}{suggest(str(name), sorted(self._forms))}")
        return self._forms[name](to_map(settings))

    def _read_submit(self, edit: Mapping[str, Any]) -> Iterator[Edit]:
        manifest = edit.get("manifest")
        yield self._submit(manifest if isinstance(manifest, list) else [manifest])

    def _submit(self, documents: list[Any]) -> Submit:
        first, self._documents = self._documents, self._documents + len(documents)
        return make_job(documents, self._defaults, first)

    def _read_nodes(self, edit: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the nodes that are named, or that have all labels of a selector."""
        named = tuple(map(str, to_list(edit.get("nodes"))))
        selector = {str(key): str(value) for key, value in to_map(edit.get("selector")).items()}
        if not named and not selector:
            raise EditError("name nodes, or give a selector of labels")
        chosen = (
            name
            for name, row in self._state.table.live_rows()
            if selector and selector.items() <= self._state.table.node_at(row).labels.items()
        )
        return tuple(dict.fromkeys((*named, *sorted(chosen))))

    def _find(self, ref: str) -> tuple[str, str, str]:
        kind, namespace, name = parse_target(ref, "", "")
        return kind, namespace or self._defaults.namespace, name

    def _delete(self, ref: str) -> Iterator[Edit]:
        return iter([Delete(name) for name in self._find_units(ref)])

    def _find_units(self, ref: str) -> list[str]:
        """Return the gangs and pods that a reference means."""
        kind, namespace, name = self._find(ref)
        if kind in {"pod", "podgroup"}:
            return [f"{namespace}/{name}"]
        owned = [
            pod.key if pod.gang is None else pod.gang.key
            for pod in self._state.pods.values()
            if pod.namespace == namespace
            and any(own.kind.lower() == kind and own.name == name for own in pod.owners)
        ]
        if not owned:
            raise EditError(f"no pod belongs to {kind} {namespace}/{name}")
        return sorted(set(owned))

    def _read_patch(self, edit: Mapping[str, Any]) -> Iterator[Edit]:
        ref, merge = str(edit.get("ref", "")), to_map(edit.get("merge"))
        spec = to_map(merge.get("spec"))
        kind, _, name = self._find(ref)
        patchable = {"min", "max"} if kind == "quota" else {"minMember", "priority"}
        if set(merge) - {"spec"} or not spec or set(spec) - patchable:
            paths = ", ".join(f"spec.{key}" for key in sorted(patchable))
            raise EditError(f"of {ref} this can be patched here: {paths}")
        if kind == "quota":
            yield SetQuota(self._patch_quota(name, spec))
            return
        for unit in self._find_units(ref):
            if "minMember" in spec:
                yield SetMinMember(unit, _to_int(spec["minMember"]))
            if "priority" in spec:
                yield SetPriority(unit, _to_int(spec["priority"]))

    def _patch_quota(self, name: str, spec: Mapping[str, Any]) -> QuotaSpec:
        catalog = self._state.quotas.catalog
        written = catalog.written_as(name)
        if written is None:
            names = {quota.name for quota in catalog.written.values()}
            raise EditError(f"there is no quota {name}{suggest(name, names)}")
        least, most = (_read_amounts(spec.get(part)) for part in ("min", "max"))
        return replace(written, min={**written.min, **least}, max={**written.max, **most})


def _uncordon(nodes: tuple[str, ...]) -> Cordon:
    return Cordon(nodes, is_on=False)


def _read_add_nodes(edit: Mapping[str, Any]) -> Iterator[Edit]:
    labels = {str(key): str(value) for key, value in to_map(edit.get("labels")).items()}
    yield AddNodes(str(edit.get("like", "")), _to_int(edit.get("count", 1)), labels)


def _read_amounts(written: Any) -> dict[str, int]:
    try:
        return {str(key): parse_amount(str(key), str(of)) for key, of in to_map(written).items()}
    except InvalidQuantityError as error:
        raise EditError(str(error)) from error


def _to_int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise EditError(f"{value!r} is no whole number")
    return value
