"""Settings of over-commitment, and what nodes say about it: from the wire to the core.

What cannot be read of a node is ignored and named; the settings of the cluster hold for it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec
from pydantic import TypeAdapter

from koord.api.colocation import ColocationConfig, ColocationStrategy
from koord.api.colocationpolicy import ColocationPolicySpec
from koord.api.json_text import load_json
from koord.api.keys.colocation import (
    CPU_NORMALIZATION,
    CPU_RECLAIM,
    MEMORY_RECLAIM,
    MID_STATIC_CPU,
    MID_STATIC_MEMORY,
    ORIGIN,
    PUBLISHED,
    STRATEGY,
    THIRD_PARTY,
)
from koord.api.keys.reservation import INNER_RESERVED
from koord.api.parse import InvalidObject, Problem, cut, parse_value
from koord.api.slo_config import SloConfigKey
from koord.caches import cached_by_text
from koord.core.colocation import formula
from koord.core.colocation.decide import COLOCATION_KEY
from koord.core.colocation.node_facts import NAME, NO_FACTS, NodeFacts, Pairs
from koord.core.colocation.strategy import (
    CalculatePolicy,
    ClusterColocation,
    NodeConfig,
    PolicySettings,
    Strategy,
)
from koord.core.model.units import CPU, MEMORY
from koord.core.numa.cpu_topology import parse_cpuset
from koord.kube.decode import MALFORMED
from koord.kube.translate.amounts import parse_amount
from koord.kube.translate.node_affinity import translate_selector
from koord.kube.translate.policies import make_spec_reader
from koord.kube.translate.selector_overlaps import find_overlaps
from koord.kube.wire import WireNode

T = TypeVar("T")
_LABELS: Final = {
    CPU_RECLAIM: "cpu_reclaim_threshold_percent",
    MEMORY_RECLAIM: "memory_reclaim_threshold_percent",
    MID_STATIC_CPU: "mid_static_cpu_reserved_percent",
    MID_STATIC_MEMORY: "mid_static_memory_reserved_percent",
}
MOST_RECLAIMED: Final = 1000
"""Percent; larger labels are ignored, as larger settings are refused."""
_MOST_FASTER: Final = 1000
_POLICIES: Final = {"cpu_calculate_policy", "memory_calculate_policy"}
_BATCH_CLASS: Final = "koord-batch"
_NAMES: Final = frozenset(formula.PUBLISHED)
_strategy_adapter: Final = TypeAdapter(ColocationStrategy)


class _Reserved(msgspec.Struct, gc=False):
    resources: dict[str, str | int] = {}
    cpus: str = msgspec.field(default="", name="reservedCPUs")


class _ThirdParty(msgspec.Struct, gc=False):
    name: str = ""
    priority: str = ""
    resources: dict[str, str | int] = {}


class _ThirdParties(msgspec.Struct, gc=False):
    allocations: list[_ThirdParty] = []


_reserved_decoder: Final = msgspec.json.Decoder(_Reserved)
_third_parties_decoder: Final = msgspec.json.Decoder(_ThirdParties)
_record_decoder: Final = msgspec.json.Decoder(dict[str, str | int | None] | None)
_texts_decoder: Final = msgspec.json.Decoder(dict[str, str | int] | None)


# --- settings -------------------------------------------------------------------------------------


def read_fields(strategy: ColocationStrategy) -> dict[str, Any]:
    """Return the fields that are set, as ``Strategy`` has them."""
    fields: dict[str, Any] = {}
    for name in ColocationStrategy.model_fields:
        value = getattr(strategy, name)
        if value is not None:
            fields[name] = CalculatePolicy(value) if name in _POLICIES else value
    return fields


def _make_config(config: ColocationConfig) -> ClusterColocation:
    return ClusterColocation(
        Strategy(**read_fields(config)),
        tuple(
            NodeConfig(
                entry.name or "", translate_selector(entry.node_selector), read_fields(entry)
            )
            for entry in config.node_configs or ()
        ),
    )


def _find_overlaps(config: ColocationConfig) -> Iterator[Problem]:
    return find_overlaps("nodeConfigs", config.node_configs or ())


COLOCATION_CONFIG: Final = SloConfigKey(
    COLOCATION_KEY, ColocationConfig, ClusterColocation, _make_config, _find_overlaps
)


def _make_policy(spec: ColocationPolicySpec) -> PolicySettings:
    # Who writes a policy wants it: it is on unless it says otherwise.
    fields = {"enable": True, **read_fields(spec)}
    selector = () if spec.node_selector is None else translate_selector(spec.node_selector)
    return PolicySettings(Strategy(**fields), selector)


translate_policy: Final = make_spec_reader(ColocationPolicySpec, _make_policy)


# --- nodes ----------------------------------------------------------------------------------------


def read_node_facts(wire: WireNode) -> tuple[tuple[str, NodeFacts], ...]:
    """Return what a node says of its over-commitment, as an extension; () for nothing."""
    annotations, labels = wire.metadata.annotations or {}, wire.metadata.labels or {}
    problems: list[str] = []
    third_party = _read(annotations, THIRD_PARTY, _read_third_parties, problems)
    recorded = _read(annotations, PUBLISHED, _read_record, problems) or ()
    facts = NodeFacts(
        annotated=_read(annotations, STRATEGY, _read_strategy, problems) or (),
        labelled=tuple(_read_labels(labels, problems)),
        reserved=_read(annotations, INNER_RESERVED, _read_reserved, problems) or (),
        third_party=third_party or (),
        has_third_party=third_party is not None,
        faster=_read(annotations, CPU_NORMALIZATION, _read_faster, problems) or 100,
        allocatable=_read_texts(bytes(wire.status.allocatable)),
        capacity=_read_texts(bytes(wire.status.capacity)),
        recorded=tuple((name, amount or 0) for name, amount in recorded),
        withdrawn=tuple(name for name, amount in recorded if amount is None),
        record=annotations.get(PUBLISHED),
        origin=annotations.get(ORIGIN),
        has_annotations=wire.metadata.annotations is not None,
        problems=tuple(problems),  # the last: of all that is read
    )
    return () if facts == NO_FACTS else ((NAME, facts),)


def _read(annotations: Mapping[str, str], key: str, read: Any, problems: list[str]) -> Any:
    text = annotations.get(key)
    if not text:
        return None
    try:
        return read(text)
    except MALFORMED as error:
        problems.append(f"metadata.annotations[{key}]: {cut(text)}: {error}")
        return None


@cached_by_text()
def _read_strategy(text: str) -> Pairs:
    strategy = parse_value(_strategy_adapter, load_json(text))
    if isinstance(strategy, InvalidObject):
        raise ValueError("; ".join(map(str, strategy.problems)))  # noqa: TRY004 - it is text
    return tuple(sorted(read_fields(strategy).items()))


def _read_labels(labels: Mapping[str, str], problems: list[str]) -> Iterator[tuple[str, int]]:
    for key, name in _LABELS.items():
        text = labels.get(key)
        if text is None:
            continue
        percent = read_ratio(text)
        if percent is None:
            problems.append(f"metadata.labels[{key}]: {cut(text)}: is no such part of the node")
        else:
            yield name, percent


def read_ratio(text: str) -> int | None:
    """Return a ratio such as ``0.65`` in percent, cut to whole ones; None if it is none."""
    try:
        ratio = float(text)
    except ValueError:
        return None
    if not 0 <= ratio * 100 <= MOST_RECLAIMED:
        return None
    return int(ratio * 100)


@cached_by_text()
def _read_reserved(text: str) -> Pairs:
    reserved = _reserved_decoder.decode(text)
    amounts = {
        name: parse_amount(name, quantity)
        for name, quantity in reserved.resources.items()
        if name in {CPU, MEMORY}
    }
    cpus = parse_cpuset(reserved.cpus)
    if not isinstance(cpus, int):
        raise ValueError(f"reservedCPUs: {cut(reserved.cpus)} is no list of CPUs")  # noqa: TRY004 - it is text
    if reserved.cpus:
        amounts[CPU] = cpus.bit_count() * 1000
    return tuple(sorted(amounts.items()))


@cached_by_text()
def _read_third_parties(text: str) -> Pairs:
    amounts: dict[str, int] = {}
    for allocation in _third_parties_decoder.decode(text).allocations:
        if allocation.priority != _BATCH_CLASS:
            continue
        for name, quantity in allocation.resources.items():
            if name in _NAMES:
                amounts[name] = amounts.get(name, 0) + parse_amount(name, quantity)
    return tuple(sorted(amounts.items()))


@cached_by_text()
def _read_faster(text: str) -> int:
    faster = round(float(text) * 100)
    if not 0 < faster <= _MOST_FASTER:
        raise ValueError("must be a ratio such as 1.20")
    return faster


@cached_by_text()
def _read_record(text: str) -> Pairs:
    amounts = _record_decoder.decode(text) or {}
    return tuple(
        (name, None if amount is None else parse_amount(name, amount))
        for name, amount in sorted(amounts.items())
    )


@cached_by_text()
def _read_texts(raw: bytes) -> tuple[tuple[str, str], ...]:
    """Return the batch and mid resources of a map, as they are written."""
    if b"kubernetes.io/batch-" not in raw and b"kubernetes.io/mid-" not in raw:
        return ()
    texts = _texts_decoder.decode(raw) or {}
    return tuple(sorted((name, str(text)) for name, text in texts.items() if name in _NAMES))
