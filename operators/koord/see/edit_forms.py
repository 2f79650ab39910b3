"""Reads edits that are to be tried, as documents have them: ``{"drain": {"nodes": ["n1"]}}``.

Names are looked up in the state; what an API server would add to manifests is asked for only if
there is one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

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
from koord.answers.redaction import EVERYTHING, Sight, namespace_of
from koord.api.manifest_text import UnreadableError, read_documents
from koord.api.quantity import InvalidQuantityError
from koord.api.untyped import to_list, to_map
from koord.core.engine.state import ClusterState
from koord.core.model.text import suggest
from koord.core.quota.model import QuotaSpec
from koord.kube.translate.amounts import parse_amount
from koord.see.manifests import DEFAULTS_UNSEEN, MOST_PODS, ServerDefaults, make_job

if TYPE_CHECKING:
    from koord.answers.envelope import AnswerGap

FindSubject = Callable[[str], tuple[str, str, str]]
"""Reads ``KIND/NAMESPACE/NAME``: the kind in full and lower case, namespace and name."""
Form = Callable[[Mapping[str, Any]], Iterator[Edit]]
"""Makes edits of the settings of one."""


class EditForms:
    """Makes edits of documents, and notes in ``gaps`` what was not known of manifests.

    ``read_defaults`` says what the API server would add to them; it may raise ``EditError``.
    What is not in ``sight`` cannot be edited: whether it can would say whether it exists.
    """

    def __init__(
        self,
        state: ClusterState,
        find: FindSubject,
        read_defaults: Callable[[], ServerDefaults],
        sight: Sight = EVERYTHING,
    ) -> None:
        self.gaps: tuple[AnswerGap, ...] = ()
        self._state = state
        self._find = find
        self._read_defaults = read_defaults
        self._sight = sight
        self._documents = 0
        self._pods = 0
        self._forms: Mapping[str, Form] = {
            "submit": lambda edit: iter((self._read_submit(edit.get("manifest")),)),
            "delete": lambda edit: self.delete(str(edit.get("ref", ""))),
            "patch": self._read_patch,
            "cordon": lambda edit: iter((Cordon(self._read_nodes(edit)),)),
            "uncordon": lambda edit: iter((Cordon(self._read_nodes(edit), is_on=False),)),
            "drain": lambda edit: iter((Drain(self._read_nodes(edit)),)),
            "removeNodes": lambda edit: iter((RemoveNodes(self._read_nodes(edit)),)),
            "addNodes": self._read_add_nodes,
        }

    def read(self, edit: Any) -> Iterator[Edit]:
        """Return what one document of an edit means; may raise ``EditError``."""
        if not isinstance(edit, dict) or len(edit) != 1:
            raise EditError("each edit is one key with its settings, such as drain: {nodes: [n1]}")
        ((name, settings),) = edit.items()
        if name not in self._forms:
            raise EditError(f"there is no edit {name}{suggest(str(name), sorted(self._forms))}")
        return self._forms[name](to_map(settings))

    def submit(self, documents: Sequence[Any]) -> Submit:
        """Return the pods and gangs of manifests; may raise ``EditError``."""
        defaults = self._read_defaults()
        self.gaps = (*defaults.gaps, DEFAULTS_UNSEEN)
        first, self._documents = self._documents, self._documents + len(documents)
        job = make_job(list(documents), defaults, first)
        self._pods += len(job.pods)
        if self._pods > MOST_PODS:
            raise EditError(f"these are more than {MOST_PODS} pods")
        groups = {namespace_of(group.key) for group in job.groups}
        for namespace in sorted({pod.namespace for pod in job.pods} | groups):
            self._refuse_hidden(self._sight.sees(namespace), f"namespace {namespace}")
        return job

    def _refuse_hidden(self, is_seen: bool, subject: str) -> None:  # noqa: FBT001 - read with its name
        if not is_seen:
            raise EditError(f"there is no {subject}, or you may not see it")

    def _read_submit(self, manifest: Any) -> Submit:
        """Read a manifest, a list of them, or the text of a file."""
        if isinstance(manifest, str):
            manifest = _read_text(manifest)
        return self.submit(manifest if isinstance(manifest, list) else [manifest])

    def delete(self, ref: str) -> Iterator[Edit]:
        return iter([Delete(name) for name in self._find_units(ref)])

    def _read_nodes(self, edit: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the nodes that are named, or that have all labels of a selector."""
        self._refuse_hidden(self._sight.nodes, "node of these names")
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

    def _find_units(self, ref: str) -> list[str]:
        """Return the gangs and pods that a reference means."""
        kind, namespace, name = self._find(ref)
        self._refuse_hidden(self._sight.sees(namespace), ref)
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

    def _read_add_nodes(self, edit: Mapping[str, Any]) -> Iterator[Edit]:
        self._refuse_hidden(self._sight.nodes, "node of this name")
        labels = {str(key): str(value) for key, value in to_map(edit.get("labels")).items()}
        yield AddNodes(str(edit.get("like", "")), _to_int(edit.get("count", 1)), labels)

    def _patch_quota(self, name: str, spec: Mapping[str, Any]) -> QuotaSpec:
        self._refuse_hidden(self._sight.sees_quota(name), f"quota {name}")
        catalog = self._state.quotas.catalog
        written = catalog.written_as(name)
        if written is None:
            names = {each.name for each in catalog.written.values()}
            names = {each for each in names if self._sight.sees_quota(each)}
            raise EditError(f"there is no quota {name}{suggest(name, names)}")
        least, most = (_read_amounts(spec.get(part)) for part in ("min", "max"))
        return replace(written, min={**written.min, **least}, max={**written.max, **most})


def decode_manifests(body: Mapping[str, Any], most: int) -> Mapping[str, Any]:
    """Return a body in which the texts of manifests are documents, which takes long.

    Raises ``EditError``, also for more than ``most`` characters of them.
    """
    edits = body.get("edits")
    if not isinstance(edits, list) or len(edits) > MOST_EDITS:
        return body
    texts = [_text_of(edit) for edit in edits]
    if sum(map(len, texts)) > most:
        raise EditError(f"texts of more than {most} characters are not read here: give documents")
    return {**body, "edits": list(map(_decode_manifest, edits, texts))}


def _text_of(edit: Any) -> str:
    submit = edit.get("submit") if isinstance(edit, dict) else None
    manifest = submit.get("manifest") if isinstance(submit, dict) else None
    return manifest if isinstance(manifest, str) else ""


def _decode_manifest(edit: Any, text: str) -> Any:
    if not text:
        return edit
    return {**edit, "submit": {**to_map(edit["submit"]), "manifest": _read_text(text)}}


def _read_text(manifest: str) -> list[Any]:
    try:
        return list(read_documents(manifest))
    except UnreadableError as error:
        raise EditError(f"the manifest cannot be read: {error}") from error


def split_subject(ref: str) -> tuple[str, str, str]:
    """Read ``podgroup/NAMESPACE/NAME`` and ``quota/NAME``, all in full."""
    kind, _, key = ref.partition("/")
    namespace, _, name = key.rpartition("/")
    if not kind or not name:
        raise EditError(f"{ref!r} is no KIND/NAMESPACE/NAME")
    return kind.lower(), namespace, name


def _read_amounts(written: Any) -> dict[str, int]:
    try:
        return {str(key): parse_amount(str(key), str(of)) for key, of in to_map(written).items()}
    except InvalidQuantityError as error:
        raise EditError(str(error)) from error


def _to_int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise EditError(f"{value!r} is no whole number")
    return value
