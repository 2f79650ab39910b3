"""All that the domains of the list bring to the planner, put together.

Knows no domain by name.
"""

from dataclasses import replace
from typing import Final

from koord.core.engine.plugin import Plugin
from koord.core.engine.state import ClusterState
from koord.domains import DOMAINS
from koord.domains.domain import load
from koord.domains.planning import Planning, PlanOptions
from koord.kube.kind import AnyKind, PodReader, TranslatorOptions
from koord.kube.translate.pods import PodTranslator

PLANNINGS: Final[tuple[Planning, ...]] = tuple(
    load(domain.planning) for domain in DOMAINS if domain.planning
)
KINDS: Final = tuple(kind for planning in PLANNINGS for kind in planning.kinds)
"""Reflectors start in this order. Whoever applies complete lists goes the other way: pods last."""


def find_pod_readers(*values: object) -> tuple[PodReader, ...]:
    """Return what domains read of pods; ``values`` are options."""
    options = PlanOptions(*values)
    return tuple(
        planning.pod_reader
        for planning in PLANNINGS
        if planning.pod_reader is not None and planning.reads_pods(options)
    )


def find_more_kinds(*values: object) -> tuple[AnyKind, ...]:
    """Return the kinds that are read with some options only; ``values`` are options."""
    options = PlanOptions(*values)
    return tuple(kind for planning in PLANNINGS for kind in planning.more_kinds(options))


def make_plugins(*values: object, compat: bool = False) -> list[Plugin]:
    """Return new plugins of all domains for one cluster state; ``values`` are options."""
    options = PlanOptions(*values, compat=compat)
    return [plugin for planning in PLANNINGS for plugin in planning.make_plugins(options)]


def make_cluster_state(*values: object, compat: bool = False) -> ClusterState:
    """Return an empty cluster state with the plugins of all domains."""
    return ClusterState(make_plugins(*values, compat=compat), compat=compat)


def make_translator_options(
    options: TranslatorOptions = TranslatorOptions(),  # noqa: B008 - a frozen value
    *values: object,
) -> TranslatorOptions:
    """Return the options of translators with what all domains read of pods."""
    return replace(options, pod_readers=find_pod_readers(*values))


def make_pod_translator(options: TranslatorOptions = TranslatorOptions()) -> PodTranslator:  # noqa: B008 - the same
    """Return a translator of pods that asks the readers of all domains."""
    return PodTranslator(make_translator_options(options))
