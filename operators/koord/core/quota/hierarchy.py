"""What quotas must satisfy together, in the order in which it is said.

The functions named ``check_create``, ``check_restore``, ``check_return``, ``check_update`` and
``check_delete`` are the whole of validation; each rule on its own is a function of the quota as
written and of the quotas in force (``ActiveQuotas``). The first rule that is broken is the answer.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from koord.core.quota.capacity import add_up
from koord.core.quota.model import BUILT_IN, NOTHING, ROOT, SYSTEM, QuotaName, QuotaRules, QuotaSpec
from koord.core.quota.registry import ActiveQuotas, Facts
from koord.core.quota.spec_errors import InvalidQuota, QuotaFault
from koord.core.quota.validate import check_spec
from koord.core.units import Amounts


@dataclass(frozen=True, slots=True)
class QuotaEdit:
    """A quota as it is to be, and all that it is judged by. ``before`` is None for a new one."""

    spec: QuotaSpec
    before: QuotaSpec | None
    registry: ActiveQuotas
    facts: Facts
    rules: QuotaRules

    @property
    def parent(self) -> QuotaSpec | None:
        """The quota above, if it is in force; None for the root, too."""
        return self.registry.get(self.spec.parent)

    @property
    def children(self) -> list[QuotaSpec]:
        """The quotas right below."""
        return self.registry.children(self.spec.name)

    @property
    def siblings(self) -> list[QuotaSpec]:
        """The other children of the same parent."""
        name = self.spec.name
        return [one for one in self.registry.children(self.spec.parent) if one.name != name]

    def fault(self, fault: QuotaFault, **details: str | int) -> InvalidQuota:
        """Name the rule that this edit breaks."""
        return InvalidQuota(fault, self.spec.name, **details)  # type: ignore[arg-type]


Rule: TypeAlias = Callable[[QuotaEdit], InvalidQuota | None]
Check: TypeAlias = Callable[[QuotaSpec, ActiveQuotas, Facts, QuotaRules], InvalidQuota | None]


def check_create(
    spec: QuotaSpec, registry: ActiveQuotas, facts: Facts, rules: QuotaRules
) -> InvalidQuota | None:
    """Return the first rule that a new quota breaks."""
    edit = QuotaEdit(spec, None, registry, facts, rules)
    if spec.name in BUILT_IN:
        return None
    if registry.get(spec.name):
        return edit.fault(QuotaFault.ALREADY_EXISTS)
    return _first((_check_namespaces, *_RULES), edit)


def check_restore(
    spec: QuotaSpec, registry: ActiveQuotas, facts: Facts, rules: QuotaRules
) -> InvalidQuota | None:
    """Return the first rule that keeps a quota out of the tree in which it was in force before.

    How much quotas guarantee together, and what was used, was judged when they were written: by
    now a node may be gone, or an edit have been forced, which takes no other quota out of force.
    """
    edit = QuotaEdit(spec, None, registry, facts, rules)
    if registry.get(spec.name):
        return edit.fault(QuotaFault.ALREADY_EXISTS)
    return check_spec(spec) or _first((_check_namespaces, *_SHAPE), edit)


def check_return(
    spec: QuotaSpec, registry: ActiveQuotas, facts: Facts, rules: QuotaRules
) -> InvalidQuota | None:
    """Return the first rule that keeps a quota out whose parent had gone, and is there again.

    The parent is another object now, and may guarantee less.
    """
    fault = check_restore(spec, registry, facts, rules)
    return fault or check_min_sum(QuotaEdit(spec, None, registry, facts, rules))


def check_update(
    spec: QuotaSpec, registry: ActiveQuotas, facts: Facts, rules: QuotaRules
) -> InvalidQuota | None:
    """Return the first rule that a quota breaks as changed."""
    before = registry.get(spec.name)
    edit = QuotaEdit(spec, before, registry, facts, rules)
    if rules.skips_unchanged and before is not None and _is_unchanged(before, spec):
        return None
    if spec.name in {ROOT, SYSTEM}:
        return edit.fault(QuotaFault.PROTECTED)
    fault = _check_namespaces(edit)
    if fault is None and before is None:
        fault = edit.fault(QuotaFault.NOT_FOUND)
    return fault or _first(_RULES, edit)


def check_delete(name: QuotaName, registry: ActiveQuotas, facts: Facts) -> InvalidQuota | None:
    """Return what stands against deleting a quota."""
    if name in BUILT_IN:
        return InvalidQuota(QuotaFault.PROTECTED, name)
    if registry.get(name) is None:
        return InvalidQuota(QuotaFault.NOT_FOUND, name)
    children = registry.children(name)
    if children:
        first = children[0].name
        return InvalidQuota(QuotaFault.HAS_CHILD_QUOTAS, name, other=first, value=len(children))
    if name in facts.labels:
        return InvalidQuota(QuotaFault.HAS_PODS, name)
    return None


def check_own(edit: QuotaEdit) -> InvalidQuota | None:
    """Check what a quota must satisfy by itself."""
    now = edit.before or edit.spec
    used = _used_below(edit, now) if edit.spec.strict_keys else NOTHING
    return check_spec(edit.spec, used)


def check_is_parent(edit: QuotaEdit) -> InvalidQuota | None:
    """Refuse to take the children of a parent, or to make a parent of a quota with pods."""
    spec, before = edit.spec, edit.before
    if before is None or before.is_parent == spec.is_parent:
        return None
    if not spec.is_parent and edit.registry.has_children(spec.name):
        return edit.fault(QuotaFault.IS_PARENT_HAS_CHILDREN, other=edit.children[0].name)
    if spec.is_parent and edit.facts.has_pods(before) and not edit.rules.parents_take_pods:
        return edit.fault(QuotaFault.IS_PARENT_HAS_PODS)
    return None


def check_tree_id(edit: QuotaEdit) -> InvalidQuota | None:
    """Keep a quota in one tree for good, that of its parent and of its children."""
    tree, before, parent = edit.spec.tree_id, edit.before, edit.parent
    if before is not None and before.tree_id != tree:
        return edit.fault(QuotaFault.TREE_ID_CHANGED, key=tree, text=before.tree_id)
    if parent is not None and parent.tree_id != tree:
        return edit.fault(
            QuotaFault.TREE_ID_MISMATCH_PARENT, key=tree, other=parent.name, text=parent.tree_id
        )
    for child in edit.children:
        if child.tree_id != tree:
            return edit.fault(
                QuotaFault.TREE_ID_MISMATCH_CHILD, key=tree, other=child.name, text=child.tree_id
            )
    return None


def check_parent(edit: QuotaEdit) -> InvalidQuota | None:
    """Require a parent that exists, takes children, and is not below its own child."""
    above = edit.spec.parent
    if above == ROOT:
        return None
    if edit.spec.name in _path(edit.registry, above):
        return edit.fault(QuotaFault.CYCLE, other=above)
    parent = edit.parent
    if parent is None:
        return edit.fault(QuotaFault.PARENT_NOT_FOUND, other=above)
    if not parent.is_parent:
        return edit.fault(QuotaFault.PARENT_NOT_PARENT, other=above)
    return None


def check_keys(edit: QuotaEdit) -> InvalidQuota | None:
    """Refuse resources that the parent does not name; where that is asked, require all it names."""
    parent = edit.parent
    pairs = [(child, edit.spec) for child in edit.children]
    if parent is not None:
        pairs.insert(0, (edit.spec, parent))
    for below, above in pairs:
        other = above.name if below is edit.spec else below.name
        different = sorted(below.max.keys() ^ above.max.keys())
        if edit.rules.requires_same_keys and different:
            return edit.fault(QuotaFault.KEYS_NOT_SAME, other=other, key=different[0])
        for fault, extra in (
            (QuotaFault.MAX_KEYS_NOT_INCLUDED, below.max.keys() - above.max.keys()),
            (QuotaFault.MIN_KEYS_NOT_INCLUDED, below.min.keys() - above.min.keys()),
        ):
            if extra:
                return edit.fault(fault, other=other, key=min(extra))
    return None


def check_min_sum(edit: QuotaEdit) -> InvalidQuota | None:
    """Require that guarantees of siblings fit into that of their parent, unless overruled."""
    spec, parent = edit.spec, edit.parent
    if spec.is_forced or spec.is_tree_root:
        return None
    if parent is not None:
        together = add_up([spec.min, *(one.min for one in edit.siblings)])
        key = _first_above(together, parent.min)
        if key is not None:
            return edit.fault(
                QuotaFault.SIBLING_MIN_SUM_EXCEEDS_PARENT,
                other=parent.name,
                key=key,
                value=together[key],
                limit=parent.min.get(key, 0),
            )
    together = add_up(child.min for child in edit.children)
    key = _first_above(together, spec.min)
    if key is None:
        return None
    return edit.fault(
        QuotaFault.CHILD_MIN_SUM_EXCEEDS_MIN,
        key=key,
        value=together[key],
        limit=spec.min.get(key, 0),
    )


def check_guarantee(edit: QuotaEdit) -> InvalidQuota | None:
    """Require that some quota above, up to the root of the tree, guarantees a raised min."""
    spec, known = edit.spec, edit.facts.guaranteed
    if not edit.rules.guarantees_usage or not spec.tree_id or spec.is_tree_root or spec.is_forced:
        return None
    if spec.parent == ROOT and not spec.is_parent:
        return None
    raised = _larger(known.get(spec.name, NOTHING), spec.min)
    below = spec
    while _first_above(raised, known.get(below.name, NOTHING)) is not None:
        above = edit.registry.get(below.parent)
        if above is None:
            fault = QuotaFault.PARENT_NOT_FOUND
            if below.is_tree_root:
                fault = QuotaFault.GUARANTEE_UNSATISFIABLE
            key = _first_above(raised, known.get(below.name, NOTHING)) or ""
            limit = known.get(below.name, NOTHING).get(key, 0)
            return edit.fault(fault, other=below.name, key=key, value=raised[key], limit=limit)
        others = [one for one in edit.registry.children(above.name) if one.name != below.name]
        together = add_up([raised, *(known.get(one.name, NOTHING) for one in others)])
        raised, below = _larger(together, above.min), above
    return None


def _check_namespaces(edit: QuotaEdit) -> InvalidQuota | None:
    for namespace in edit.spec.namespaces:
        owner = edit.registry.owner_of.get(namespace, edit.spec.name)
        if owner != edit.spec.name:
            return edit.fault(QuotaFault.NAMESPACE_BOUND, other=owner, key=namespace)
    return None


_SHAPE: Final[tuple[Rule, ...]] = (check_tree_id, check_parent, check_keys)
"""What makes quotas a tree."""
_RULES: Final[tuple[Rule, ...]] = (
    check_own,
    check_is_parent,
    *_SHAPE,
    check_min_sum,
    check_guarantee,
)


def _first(rules: Iterable[Rule], edit: QuotaEdit) -> InvalidQuota | None:
    found = (rule(edit) for rule in rules)
    return next((fault for fault in found if fault), None)


def _is_unchanged(before: QuotaSpec, after: QuotaSpec) -> bool:
    return _interpreted(before) == _interpreted(after)


def _interpreted(spec: QuotaSpec) -> tuple[object, ...]:
    return (spec.parent, spec.is_parent, spec.tree_id, spec.namespaces, spec.min, spec.max)


def _path(registry: ActiveQuotas, name: QuotaName) -> list[QuotaName]:
    path = []
    spec = registry.get(name)
    while spec is not None:
        path.append(spec.name)
        spec = registry.get(spec.parent)
    return path


def _used_below(edit: QuotaEdit, quota: QuotaSpec) -> dict[str, int]:
    """Return what the pods of a quota use of what it limits, and those of all quotas below."""
    below = (_used_below(edit, one) for one in edit.registry.children(quota.name))
    own = edit.facts.used.get(quota.name, NOTHING)
    return add_up(({key: own[key] for key in own if key in quota.max}, *below))


def _first_above(amounts: Amounts, limits: Amounts) -> str | None:
    above = (key for key, amount in sorted(amounts.items()) if amount > limits.get(key, 0))
    return next(above, None)


def _larger(one: Amounts, other: Amounts) -> dict[str, int]:
    return {key: max(one.get(key, 0), other.get(key, 0)) for key in {**one, **other}}
