"""Which namespaces quotas cover, and which of their resources: for the policy ``koord-enforce``.

A namespace is covered if its pods belong to a quota without naming one. A quota that is not in
force covers its namespaces, too: its pods wait. What parents limit counts as well.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from koord.core.model.device_names import CURRENT_NAME, GPU, TYPE_OF
from koord.core.model.units import is_unlimited
from koord.core.quota.catalog import QuotaCatalog
from koord.core.quota.model import QuotaName, QuotaSpec, with_parents
from koord.isolation import Isolation

_GPU_NAMES: Final = frozenset(
    {name for name, kind in TYPE_OF.items() if kind == GPU}
    | {old for old, name in CURRENT_NAME.items() if TYPE_OF.get(name) == GPU}
)
"""All names by which GPUs are asked for: a quota that limits one of them is about GPUs."""

_isolated: Final = Isolation("enforcement")


def find_covered(catalog: QuotaCatalog) -> dict[str, frozenset[str]]:
    """Return the covered namespaces, each with the resources that its quotas limit."""
    specs = {spec.name: spec for spec in catalog.written.values()} | catalog.registry.specs
    covered: dict[str, frozenset[str]] = {}
    for spec in specs.values():
        with _isolated.of(spec.uid):
            limited = frozenset(_list_limited(spec, specs))
            for namespace in covers(spec):
                covered[namespace] = covered.get(namespace, frozenset()) | limited
    return {namespace: names for namespace, names in covered.items() if names}


def covers(spec: QuotaSpec) -> tuple[str, ...]:
    """Return the namespaces whose pods belong to a quota without naming it."""
    own = (spec.namespace,) if spec.namespace == spec.name else ()
    return (*own, *spec.namespaces)


def _list_limited(spec: QuotaSpec, specs: Mapping[QuotaName, QuotaSpec]) -> Iterator[str]:
    for quota in with_parents(spec, specs):
        names = {name for name, amount in quota.max.items() if not is_unlimited(amount)}
        yield from names
        if names & _GPU_NAMES:
            yield from _GPU_NAMES
