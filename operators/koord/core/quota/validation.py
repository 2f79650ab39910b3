"""Validation of quotas: each by itself (``check_spec``), and together with the quotas in force.

``check_create``, ``check_restore``, ``check_return``, ``check_update`` and ``check_unused`` apply
the rules in the specified order and return the first that is broken. A rule is a function of the
quota as written and of the quotas in force (``ActiveQuotas``).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from koord.core.model.units import Amounts
from koord.core.quota.model import (
    BUILT_IN,
    NOTHING,
    ROOT,
    SYSTEM,
    QuotaName,
    QuotaRules,
    QuotaSpec,
    add_up,
)
from koord.core.quota.registry import ActiveQuotas, Facts
from koord.core.quota.spec_errors import InvalidQuota, QuotaProblem

SHARED_WEIGHT: Final = "shared-weight"
STRICT_KEYS: Final = "max-strict-check-resource-keys"
"""Annotations as named in ``QuotaSpec.unreadable``, without their prefix."""


@dataclass(slots=True)
class QuotaEdit:
    """New settings of a quota, and their context. ``before`` is None for a new quota."""

    spec: QuotaSpec
    before: QuotaSpec | None
    registry: ActiveQuotas
    facts: Facts
    rules: QuotaRules
    parent: QuotaSpec | None = field(init=False)
    """The parent, if it is in force; None for the root."""
    children: list[QuotaSpec] = field(init=False)

    def __post_init__(self) -> None:
        self.parent = self.registry.get(self.spec.parent)
        self.children = self.registry.children(self.spec.name)

    @property
    def siblings(self) -> list[QuotaSpec]:
        name = self.spec.name
        return [child for child in self.registry.children(self.spec.parent) if child.name != name]

    def invalid(self, problem: QuotaProblem, **details: str | int) -> InvalidQuota:
        return InvalidQuota(problem, self.spec.name, **details)  # type: ignore[arg-type]


Rule: TypeAlias = Callable[[QuotaEdit], InvalidQuota | None]
Check: TypeAlias = Callable[[QuotaSpec, ActiveQuotas, Facts, QuotaRules], InvalidQuota | None]


def check_create(
    spec: QuotaSpec, registry: ActiveQuotas, facts: Facts, rules: QuotaRules
) -> InvalidQuota | None:
    edit = QuotaEdit(spec, None, registry, facts, rules)
    if spec.name in BUILT_IN:
        return None
    if registry.get(spec.name):
        return edit.invalid(QuotaProblem.ALREADY_EXISTS)
    return _first((_check_namespaces, *_RULES), edit)


def check_restore(
    spec: QuotaSpec, registry: ActiveQuotas, facts: Facts, rules: QuotaRules
) -> InvalidQuota | None:
    """Return the first rule that keeps a quota out of the tree that it was in before a restart.

    Sums of guarantees and usage were checked when the quota was edited. A node deleted since, or a
    forced edit of another quota, must not take this one out of force.
    """
    edit = QuotaEdit(spec, None, registry, facts, rules)
    if registry.get(spec.name):
        return edit.invalid(QuotaProblem.ALREADY_EXISTS)
    return check_spec(spec) or _first((_check_namespaces, *_SHAPE), edit)


def check_return(
    spec: QuotaSpec, registry: ActiveQuotas, facts: Facts, rules: QuotaRules
) -> InvalidQuota | None:
    """Return the first rule that keeps a quota out whose parent was deleted and created again.

    The parent is another object now, and may guarantee less.
    """
    problem = check_restore(spec, registry, facts, rules)
    return problem or check_min_sum(QuotaEdit(spec, None, registry, facts, rules))


def check_update(
    spec: QuotaSpec, registry: ActiveQuotas, facts: Facts, rules: QuotaRules
) -> InvalidQuota | None:
    before = registry.get(spec.name)
    edit = QuotaEdit(spec, before, registry, facts, rules)
    if rules.skips_unchanged and before is not None and _is_unchanged(before, spec):
        return None
    if spec.name in {ROOT, SYSTEM}:
        return edit.invalid(QuotaProblem.PROTECTED)
    problem = _check_namespaces(edit)
    if problem is None and before is None:
        problem = edit.invalid(QuotaProblem.NOT_FOUND)
    return problem or _first(_RULES, edit)


def check_unused(name: QuotaName, children: Sequence[QuotaName], pods: int) -> InvalidQuota | None:
    """Return why a quota is kept although it is deleted."""
    if children:
        problem = QuotaProblem.HAS_CHILD_QUOTAS
        return InvalidQuota(problem, name, other=children[0], value=len(children))
    return InvalidQuota(QuotaProblem.HAS_PODS, name, value=pods) if pods else None


def check_own(edit: QuotaEdit) -> InvalidQuota | None:
    now = edit.before or edit.spec
    used = _used_below(edit, now) if edit.spec.strict_keys else NOTHING
    return check_spec(edit.spec, used)


def check_is_parent(edit: QuotaEdit) -> InvalidQuota | None:
    """Refuse to unmake a parent that has children, or to make a parent of a quota with pods."""
    spec, before = edit.spec, edit.before
    if before is None or before.is_parent == spec.is_parent:
        return None
    if not spec.is_parent and edit.registry.has_children(spec.name):
        return edit.invalid(QuotaProblem.IS_PARENT_HAS_CHILDREN, other=edit.children[0].name)
    if spec.is_parent and edit.facts.has_pods(before) and not edit.rules.parents_take_pods:
        return edit.invalid(QuotaProblem.IS_PARENT_HAS_PODS)
    return None


def check_tree_id(edit: QuotaEdit) -> InvalidQuota | None:
    """Require that a quota stays in its tree, and is in the tree of its parent and children."""
    tree, before, parent = edit.spec.tree_id, edit.before, edit.parent
    if before is not None and before.tree_id != tree:
        return edit.invalid(QuotaProblem.TREE_ID_CHANGED, key=tree, text=before.tree_id)
    if parent is not None and parent.tree_id != tree:
        return edit.invalid(
            QuotaProblem.TREE_ID_MISMATCH_PARENT, key=tree, other=parent.name, text=parent.tree_id
        )
    for child in edit.children:
        if child.tree_id != tree:
            return edit.invalid(
                QuotaProblem.TREE_ID_MISMATCH_CHILD, key=tree, other=child.name, text=child.tree_id
            )
    return None


def check_parent(edit: QuotaEdit) -> InvalidQuota | None:
    """Require a parent that exists, takes children, and is not below its own child."""
    above = edit.spec.parent
    if above == ROOT:
        return None
    below = edit.registry.descendants(edit.spec.name) if edit.before else ()
    if above in below or (edit.before and above == edit.spec.name):
        return edit.invalid(QuotaProblem.CYCLE, other=above)
    parent = edit.parent
    if parent is None:
        return edit.invalid(QuotaProblem.PARENT_NOT_FOUND, other=above)
    if not parent.is_parent:
        return edit.invalid(QuotaProblem.PARENT_NOT_PARENT, other=above)
    return None


def check_keys(edit: QuotaEdit) -> InvalidQuota | None:
    """Refuse resources that the parent does not name; optionally require all that it names."""
    parent = edit.parent
    pairs = [(child, edit.spec) for child in edit.children]
    if parent is not None:
        pairs.insert(0, (edit.spec, parent))
    for below, above in pairs:
        other = above.name if below is edit.spec else below.name
        different = sorted(below.max.keys() ^ above.max.keys())
        if edit.rules.requires_same_keys and different:
            return edit.invalid(QuotaProblem.KEYS_NOT_SAME, other=other, key=different[0])
        for rule, extra in (
            (QuotaProblem.MAX_KEYS_NOT_INCLUDED, below.max.keys() - above.max.keys()),
            (QuotaProblem.MIN_KEYS_NOT_INCLUDED, below.min.keys() - above.min.keys()),
        ):
            if extra:
                return edit.invalid(rule, other=other, key=min(extra))
    return None


def check_min_sum(edit: QuotaEdit) -> InvalidQuota | None:
    """Require that the guarantees of siblings fit into that of their parent, unless forced."""
    spec, parent = edit.spec, edit.parent
    if spec.is_forced or spec.is_tree_root:
        return None
    if parent is not None:
        together = add_up([spec.min, *(sibling.min for sibling in edit.siblings)])
        key = _first_above(together, parent.min)
        if key is not None:
            return edit.invalid(
                QuotaProblem.SIBLING_MIN_SUM_EXCEEDS_PARENT,
                other=parent.name,
                key=key,
                value=together[key],
                limit=parent.min.get(key, 0),
            )
    together = add_up(child.min for child in edit.children)
    key = _first_above(together, spec.min)
    if key is None:
        return None
    return edit.invalid(
        QuotaProblem.CHILD_MIN_SUM_EXCEEDS_MIN,
        key=key,
        value=together[key],
        limit=spec.min.get(key, 0),
    )


def check_guarantee(edit: QuotaEdit) -> InvalidQuota | None:
    """Require that some ancestor, up to the root of the tree, guarantees a raised min."""
    spec = edit.spec
    if not edit.rules.guarantees_usage or not spec.tree_id or spec.is_tree_root or spec.is_forced:
        return None
    if spec.parent == ROOT and not spec.is_parent:
        return None
    raised = _larger(_guaranteed(edit, spec.name), spec.min)
    below = spec
    while (key := _first_above(raised, guaranteed := _guaranteed(edit, below.name))) is not None:
        above = edit.registry.get(below.parent)
        if above is None:
            problem = QuotaProblem.PARENT_NOT_FOUND
            if below.is_tree_root:
                problem = QuotaProblem.GUARANTEE_UNSATISFIABLE
            limit = guaranteed.get(key, 0)
            return edit.invalid(problem, other=below.name, key=key, value=raised[key], limit=limit)
        siblings = [
            child for child in edit.registry.children(above.name) if child.name != below.name
        ]
        together = add_up([raised, *(_guaranteed(edit, sibling.name) for sibling in siblings)])
        raised, below = _larger(together, above.min), above
    return None


def _guaranteed(edit: QuotaEdit, name: QuotaName) -> Amounts:
    """Return what a quota is guaranteed with its settings in force: min, or what is used."""
    facts, spec = edit.facts, edit.registry.get(name)
    if spec is None or name in facts.guaranteed:
        return facts.guaranteed.get(name, NOTHING)
    below = (_guaranteed(edit, child.name) for child in edit.registry.children(name))
    return _larger(add_up([facts.used.get(name, NOTHING), *below]), spec.min)


def _check_namespaces(edit: QuotaEdit) -> InvalidQuota | None:
    """Refuse a namespace of another quota, unless each of the two has a node pool of its own."""
    spec = edit.spec
    for namespace in spec.namespaces:
        for owner in edit.registry.owners.get(namespace, ()):
            if owner != spec.name and not _are_of_different_pools(edit, owner):
                return edit.invalid(QuotaProblem.NAMESPACE_BOUND, other=owner, key=namespace)
    return None


def _are_of_different_pools(edit: QuotaEdit, other: QuotaName) -> bool:
    if not edit.rules.restricts_use:
        return False
    trees = {edit.spec.tree_id, edit.registry.specs[other].tree_id}
    return len(trees) > 1 and trees <= edit.registry.pools().keys()


_SHAPE: Final[tuple[Rule, ...]] = (check_tree_id, check_parent, check_keys)
"""Rules that make quotas a tree."""
_RULES: Final[tuple[Rule, ...]] = (
    check_own,
    check_is_parent,
    *_SHAPE,
    check_min_sum,
    check_guarantee,
)


def _first(rules: Iterable[Rule], edit: QuotaEdit) -> InvalidQuota | None:
    problems = (rule(edit) for rule in rules)
    return next((problem for problem in problems if problem), None)


def _is_unchanged(before: QuotaSpec, after: QuotaSpec) -> bool:
    return _interpreted(before) == _interpreted(after)


def _interpreted(spec: QuotaSpec) -> tuple[object, ...]:
    return (spec.parent, spec.is_parent, spec.tree_id, spec.namespaces, spec.min, spec.max)


def _used_below(edit: QuotaEdit, quota: QuotaSpec) -> dict[str, int]:
    """Return what the pods of a quota use of what it limits, and those of all quotas below."""
    below = (edit.registry.specs[name] for name in edit.registry.descendants(quota.name))
    return add_up(
        {
            key: used
            for key, used in edit.facts.used.get(spec.name, NOTHING).items()
            if key in spec.max
        }
        for spec in (quota, *below)
    )


def _first_above(amounts: Amounts, limits: Amounts) -> str | None:
    above = (key for key, amount in sorted(amounts.items()) if amount > limits.get(key, 0))
    return next(above, None)


def _larger(first: Amounts, second: Amounts) -> dict[str, int]:
    return {key: max(first.get(key, 0), second.get(key, 0)) for key in {**first, **second}}


def check_spec(spec: QuotaSpec, used: Amounts = NOTHING) -> InvalidQuota | None:
    """Return the first rule that a quota breaks by itself, given what its pods use."""
    return next(_find_problems(spec, used), None)


def _find_problems(spec: QuotaSpec, used: Amounts) -> Iterator[InvalidQuota]:
    name, highest, unreadable = spec.name, spec.max, dict(spec.unreadable)
    yield from _find_negative(name, highest, QuotaProblem.NEGATIVE_MAX)
    yield from _find_negative(name, spec.min, QuotaProblem.NEGATIVE_MIN)
    if (text := unreadable.get(SHARED_WEIGHT)) is not None:
        yield InvalidQuota(QuotaProblem.INVALID_SHARED_WEIGHT, name, key=SHARED_WEIGHT, text=text)
    yield from _find_negative(name, spec.weight or NOTHING, QuotaProblem.NEGATIVE_SHARED_WEIGHT)
    for key, low in sorted(spec.min.items()):
        if key not in highest:
            yield InvalidQuota(QuotaProblem.MIN_KEY_NOT_IN_MAX, name, key=key, value=low)
        elif low > highest[key]:
            limit = highest[key]
            yield InvalidQuota(QuotaProblem.MIN_EXCEEDS_MAX, name, key=key, value=low, limit=limit)
    if (text := unreadable.get(STRICT_KEYS)) is not None:
        yield InvalidQuota(QuotaProblem.INVALID_STRICT_KEYS, name, key=STRICT_KEYS, text=text)
    for key in [key for key in spec.strict_keys if key in used]:
        limit = used[key]
        if key not in highest:
            yield InvalidQuota(QuotaProblem.STRICT_KEY_NOT_IN_MAX, name, key=key, limit=limit)
        elif (high := highest[key]) < limit:
            yield InvalidQuota(QuotaProblem.MAX_BELOW_USED, name, key=key, value=high, limit=limit)
    for key, text in spec.unreadable:
        yield InvalidQuota(QuotaProblem.INVALID_ANNOTATION, name, key=key, text=text)


def _find_negative(
    name: QuotaName, amounts: Amounts, problem: QuotaProblem
) -> Iterator[InvalidQuota]:
    for key, amount in sorted(amounts.items()):
        if amount < 0:
            yield InvalidQuota(problem, name, key=key, value=amount)
