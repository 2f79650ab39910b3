"""Which settings of each quota are in force: the current ones if valid, else the last valid ones.

Objects come and go in any order; ``settle`` brings the quotas in force in line with them. Current
settings are tried oldest object first, repeatedly until none can be added, so the outcome depends
on the objects alone, not on the order of events. Of objects that contradict each other the oldest
wins. A quota that never was valid is not in force; its pods stay pending with the reason.

Quotas fail closed. One that is gone although it has pods is remembered as long as it has: its pods
stay pending, too. While the definition of ElasticQuota itself is gone (``is_missing``), the quotas
that were known stay in force, and nothing starts in them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from koord.core.model.units import Amounts
from koord.core.quota.model import (
    BUILT_IN,
    DEFAULT_TREE,
    ROOT,
    SYSTEM,
    QuotaName,
    QuotaRules,
    QuotaSpec,
    TreeId,
)
from koord.core.quota.registry import NO_FACTS, ActiveQuotas, Facts, InactiveQuotas, find_inactive
from koord.core.quota.spec_errors import DEPENDS_ON_PODS, InvalidQuota, QuotaProblem
from koord.core.quota.tree import QuotaTree, make_tree, replace_spec
from koord.core.quota.validation import (
    Check,
    check_create,
    check_restore,
    check_return,
    check_update,
)

QuotaKey: TypeAlias = str
"""``namespace/name`` of an object; several objects may claim one name."""


@dataclass(frozen=True, slots=True)
class Standing:
    """An object with its current settings, and what is in force of it.

    ``valid`` are its last valid settings: in force, unless a parent is gone. ``is_meant``: pods and
    children that name the quota mean this object.
    """

    written: QuotaSpec
    in_force: QuotaSpec | None
    valid: QuotaSpec | None
    problem: InvalidQuota | None
    is_meant: bool


class QuotaCatalog:
    """All objects, the quotas in force, and the faults of the others."""

    def __init__(self, rules: QuotaRules | None = None) -> None:
        self.rules = rules or QuotaRules()
        self.registry = ActiveQuotas()
        self.problems: dict[QuotaKey, InvalidQuota] = {}
        self.defects: dict[QuotaKey, Exception] = {}
        """Objects whose validation raised an exception; the others are validated all the same."""
        self.built_in: dict[QuotaName, QuotaSpec] = {}
        self._written: dict[QuotaKey, QuotaSpec] = {}
        self.written: Mapping[QuotaKey, QuotaSpec] = self._written
        """All objects with their current settings, except built-in quotas; read only."""
        self._last_valid: dict[QuotaKey, QuotaSpec] = {}
        self._claims: dict[QuotaName, set[QuotaKey]] = {}
        self._trees: dict[TreeId, QuotaTree] = {}
        self._is_dirty = False
        self._inactive: InactiveQuotas | None = None
        self._known: frozenset[QuotaName] | None = None
        self._children: dict[QuotaName, list[QuotaName]] | None = None
        self._was_settled = False
        """False until the first ``settle``: the last valid settings then were in force together."""
        self.gone: dict[QuotaName, QuotaSpec] = {}
        """Quotas whose objects are gone although they have pods, with their last settings."""
        self.is_missing = False
        """The API server does not serve ElasticQuotas, but has done so not long ago."""
        self._keeps_gone = self.rules.restricts_use
        self.bindings = 0
        """Grows whenever pods may belong to another quota than before."""
        self.edits = 0
        """Grows with every change of an object, and of whether there are any."""

    def upsert(self, spec: QuotaSpec) -> None:
        if spec.name in BUILT_IN:
            self.built_in[spec.name] = spec
            return
        key = key_of(spec)
        before = self._written.get(key)
        self._written[key] = spec
        if spec.last_valid is not None and self._find_in_force(spec) is None:
            self._last_valid[key] = spec.last_valid
        if before == spec:
            return
        self._inactive = self._known = self._children = None
        self.bindings += 1
        self.edits += 1
        self._claims.setdefault(spec.name, set()).add(key)
        self.gone.pop(spec.name, None)
        self._is_dirty = True

    def remove(self, key: QuotaKey) -> None:
        spec = self._written.pop(key, None)
        if spec is None:
            name = key.rpartition("/")[2]
            if name in self.built_in and key_of(self.built_in[name]) == key:
                del self.built_in[name]
            return
        self._inactive = self._known = self._children = None
        self.bindings += 1
        self.edits += 1
        self._claims[spec.name].discard(key)
        if not self._claims[spec.name]:
            del self._claims[spec.name]
            if self._keeps_gone:
                self.gone[spec.name] = self.registry.get(spec.name) or spec
        self._last_valid.pop(key, None)
        self.problems.pop(key, None)
        if self._find_in_force(spec) is not None:
            self._drop(spec.name)
        self._is_dirty = True

    def standing_of(self, key: QuotaKey) -> Standing:
        """Return what is in force of an object."""
        written = self._written[key]
        in_force = self._find_in_force(written)
        meant = in_force or self.registry.get(written.name) or self.written_as(written.name)
        return Standing(
            written,
            in_force,
            in_force or self._last_valid.get(key),
            self.problems.get(key),
            is_meant=meant is not None and key_of(meant) == key,
        )

    def _find_in_force(self, written: QuotaSpec) -> QuotaSpec | None:
        current = self.registry.get(written.name)
        return current if current is not None and key_of(current) == key_of(written) else None

    def written_as(self, name: QuotaName) -> QuotaSpec | None:
        """Return the current settings of a name, of the oldest object if there are several."""
        keys = sorted(self._claims.get(name, ()), key=self._age)
        return self._written[keys[0]] if keys else None

    def is_written(self, name: QuotaName) -> bool:
        return bool(self._claims.get(name))

    @property
    def inactive(self) -> InactiveQuotas:
        if self._inactive is None:
            names = self.registry.specs
            written = (
                self._last_valid.get(key) or self._written[key]
                for key in sorted(self._written, key=self._age)
                if self._written[key].name not in names
            )
            self._inactive = find_inactive((*written, *self.gone.values()))
        return self._inactive

    def children(self, name: QuotaName) -> Sequence[QuotaName]:
        """Return the quotas that name a quota as their parent, valid or not."""
        if self._children is None:
            self._children = {}
            for spec in self._written.values():
                self._children.setdefault(spec.parent, []).append(spec.name)
        return self._children.get(name, ())

    @property
    def known_names(self) -> frozenset[QuotaName]:
        """The quotas that pods on nodes may be charged to: those that exist, valid or not."""
        if self._known is None:
            self._known = frozenset({SYSTEM, *self.registry.specs, *self.inactive.specs})
        return self._known

    def claimants(self, name: QuotaName) -> tuple[QuotaSpec, ...]:
        """Return the current settings of all objects of a name, in any namespace."""
        return tuple(self._written[key] for key in sorted(self._claims.get(name, ())))

    def problem_of(self, name: QuotaName) -> InvalidQuota | None:
        """Return the fault of the oldest invalid object of a name."""
        keys = sorted(self._claims.get(name, ()), key=self._age)
        return next((self.problems[key] for key in keys if key in self.problems), None)

    def trees(self) -> dict[TreeId, QuotaTree]:
        """Return the trees of the quotas in force; an unchanged tree is the very same object."""
        trees = {tree_id: self.tree(tree_id) for tree_id in sorted(self.registry.trees())}
        return {tree_id: tree for tree_id, tree in trees.items() if len(tree.specs) > 1}

    def tree(self, tree_id: TreeId) -> QuotaTree:
        tree = self._trees.get(tree_id)
        if tree is None:
            specs = [spec for spec in self.registry.specs.values() if spec.tree_id == tree_id]
            tree = self._trees[tree_id] = make_tree(specs)
        return tree

    def settle(self, facts: Facts = NO_FACTS) -> None:
        self._forget_gone(name for name in self.gone if name not in facts.labels)
        if not self._is_dirty and not self._waits_for_facts():
            return
        self._is_dirty = False
        self._inactive = self._known = None
        self.problems = {}
        self.defects = {}
        self._drop_orphans()
        check_kept = check_return if self._was_settled else check_restore
        self._was_settled = True
        while (
            self._try_all(self._kept(), facts, check_kept)
            or self._try_all(self._new(), facts, check_create)
            or self._try_all(self._pending(), facts, check_create)
        ):
            pass

    def note_missing(self, *, is_missing: bool, is_final: bool = False) -> None:
        """Note whether ElasticQuotas are not served at present, and whether for good."""
        if self.is_missing is not is_missing:
            self.is_missing = is_missing
            self.bindings += 1
            self.edits += 1
        self._keeps_gone = self.rules.restricts_use and not is_final
        if is_final:
            self._forget_gone(self.gone)

    def forget(self, name: QuotaName) -> None:
        """Keep nothing of a quota that is gone: it was only tried, and never there."""
        self._forget_gone(self.gone.keys() & {name})

    def _forget_gone(self, names: Iterable[QuotaName]) -> None:
        for name in list(names):
            del self.gone[name]
            self._inactive = self._known = None
            self.bindings += 1

    def _waits_for_facts(self) -> bool:
        return any(problem.rule in DEPENDS_ON_PODS for problem in self.problems.values())

    def _kept(self) -> list[tuple[QuotaKey, QuotaSpec]]:
        """Return settings in force before a restart, or before a parent was deleted, oldest first.

        They are tried before current settings: an edit that was refused then is refused again.
        """
        return [
            (key, self._last_valid[key])
            for key in sorted(self._last_valid, key=self._age)
            if key not in self.defects and self._written[key].name not in self.registry.specs
        ]

    def _new(self) -> list[tuple[QuotaKey, QuotaSpec]]:
        return [
            (key, spec)
            for key, spec in sorted(self._written.items(), key=lambda item: self._age(item[0]))
            if key not in self.defects
            and key not in self._last_valid
            and spec.name not in self.registry.specs
        ]

    def _pending(self) -> list[tuple[QuotaKey, QuotaSpec]]:
        return [
            (key, spec)
            for key, spec in sorted(self._written.items(), key=lambda item: self._age(item[0]))
            if key not in self.defects
            and self.registry.get(spec.name) != fill_in(spec, self.registry)
        ]

    def _try_all(
        self,
        pending: Iterable[tuple[QuotaKey, QuotaSpec]],
        facts: Facts,
        check_new: Check,
    ) -> bool:
        progress = False
        for key, spec in pending:
            problem = self._try(key, fill_in(spec, self.registry), facts, check_new)
            if problem is None:
                self.problems.pop(key, None)
                self._last_valid.pop(key, None)
                progress = True
            else:
                self.problems[key] = problem
        return progress

    def _try(
        self, key: QuotaKey, spec: QuotaSpec, facts: Facts, check_new: Check
    ) -> InvalidQuota | None:
        before = self.registry.get(spec.name)
        is_update = before is not None and key_of(before) == key
        check = check_update if is_update else check_new
        try:
            problem = check(spec, self.registry, facts, self.rules)
            if problem is None:
                self._put(before, spec)
        except Exception as error:  # noqa: BLE001 - one object must not stop all others
            self.defects[key] = error
            self._trees.pop(spec.tree_id, None)
            text = type(error).__name__
            return InvalidQuota(QuotaProblem.INTERNAL_ERROR, spec.name, text=text)
        return problem

    def _put(self, before: QuotaSpec | None, spec: QuotaSpec) -> None:
        if before is None or _binds(before) != _binds(spec):
            self.bindings += 1
        self.registry.put(spec)
        tree = self._trees.get(spec.tree_id)
        if before is not None and before.tree_id != spec.tree_id:
            self._trees.pop(before.tree_id, None)
        if tree is not None and before is not None and spec.name in tree.layout.row_of:
            self._trees[spec.tree_id] = replace_spec(tree, spec)
        else:
            self._trees.pop(spec.tree_id, None)

    def _drop(self, name: QuotaName) -> None:
        spec = self.registry.get(name)
        if spec is not None:
            self.bindings += 1
            self.registry.drop(name)
            self._trees.pop(spec.tree_id, None)

    def _drop_orphans(self) -> None:
        """Take quotas out of force that have lost their parent, and all quotas below them."""
        for spec in self.registry.orphans():
            self._last_valid[key_of(spec)] = spec
            self._drop(spec.name)

    def _age(self, key: QuotaKey) -> tuple[float, QuotaKey]:
        return (self._written[key].created, key)


def _binds(spec: QuotaSpec) -> tuple[object, ...]:
    """Return what of a quota decides which pods belong to it."""
    pool = (spec.tree_id, spec.is_tree_root, spec.selector, tuple(spec.max))
    return spec.namespaces, spec.shared_with, pool


def key_of(spec: QuotaSpec) -> QuotaKey:
    return f"{spec.namespace}/{spec.name}"


def fill_in(spec: QuotaSpec, registry: ActiveQuotas) -> QuotaSpec:
    """Return a quota with the tree of its parent and a weight for each resource of its max.

    Koordinator writes these defaults into the object when it is created; here the object stays as
    its owner wrote it.
    """
    tree = spec.tree_id
    if tree == DEFAULT_TREE and spec.parent != ROOT:
        parent = registry.get(spec.parent)
        tree = parent.tree_id if parent else tree
    return replace(spec, tree_id=tree, weight=fill_in_weight(spec.weight, spec.max))


def fill_in_weight(weight: Amounts | None, largest: Amounts) -> Amounts:
    """Return the weight of every resource that max names: as written, or else its max.

    Negative weights of other resources stay, for the check that refuses the quota.
    """
    written = weight or {}
    refused = {key: amount for key, amount in written.items() if amount < 0}
    return refused | {key: written.get(key, amount) for key, amount in largest.items()}
