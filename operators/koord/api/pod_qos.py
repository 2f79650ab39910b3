"""What pods say to the agent of their node: annotations and labels, and what is wrong with them.

koordlet applies them; the operators only check them. The fields are those that a NodeSLO has for a
whole class, with the same bounds.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter

from koord.api.keys import slo
from koord.api.misspelled_keys import MisspelledKey
from koord.api.model import Model, Rule
from koord.api.nodeslo import BlkioQos, CpuBurstStrategy, CpuQos, MemoryQos, NetworkQos
from koord.api.parse import InvalidObject, JsonAnnotation, Problem, cut, format_field

LOWEST_SCORE: Final = -1000
HIGHEST_SCORE: Final = 1000
MAX_CACHES: Final = 64
MAX_SHOWN: Final = 512
"""What an event shows of a problem: names of containers may be long."""

Score = Annotated[int, Field(ge=LOWEST_SCORE, le=HIGHEST_SCORE)]
_Part = Annotated[int, Field(ge=1, le=100)]


class PodMemoryQos(MemoryQos):
    """Memory of a pod."""

    policy: Literal["", "default", "none", "auto"] | None = None
    """Whether the settings of its class count, nothing, or what the agent thinks."""


def _is_range(bounds: Any) -> bool:
    return bool(bounds[0] < bounds[1])


class CacheSchemata(Model):
    """A part of the last-level cache: from where to where, in percent."""

    range: (
        Annotated[
            list[Annotated[int, Field(ge=0, le=100)]],
            Field(min_length=2, max_length=2),
            Rule("self[0] < self[1]", "must begin below its end", _is_range),
        ]
        | None
    ) = None


class BandwidthSchemata(Model):
    """A part of memory bandwidth, in percent."""

    percent: _Part | None = None


class CacheOf(CacheSchemata):
    """The part of one cache."""

    cache_id: Annotated[int | None, Field(alias="cacheid", ge=0)] = None


class BandwidthOf(BandwidthSchemata):
    """The part of one domain of memory bandwidth."""

    cache_id: Annotated[int | None, Field(alias="cacheid", ge=0)] = None


class LastLevelCache(Model):
    """The last-level cache of a pod."""

    schemata: CacheSchemata | None = None
    schemata_per_cache: Annotated[list[CacheOf], Field(max_length=MAX_CACHES)] | None = None


class MemoryBandwidth(Model):
    """Memory bandwidth of a pod."""

    schemata: BandwidthSchemata | None = None
    schemata_per_cache: Annotated[list[BandwidthOf], Field(max_length=MAX_CACHES)] | None = None


class Resctrl(Model):
    """Cache and memory bandwidth of a pod."""

    llc: LastLevelCache | None = None
    mb: MemoryBandwidth | None = None


QOS_ANNOTATIONS: Final[tuple[JsonAnnotation[Any], ...]] = (
    JsonAnnotation(slo.CPU_BURST, TypeAdapter(CpuBurstStrategy)),
    JsonAnnotation(slo.CPU_QOS, TypeAdapter(CpuQos)),
    JsonAnnotation(slo.MEMORY_QOS, TypeAdapter(PodMemoryQos)),
    JsonAnnotation(slo.BLKIO_QOS, TypeAdapter(BlkioQos)),
    JsonAnnotation(slo.NETWORK_QOS, TypeAdapter(NetworkQos)),
    JsonAnnotation(slo.RESCTRL, TypeAdapter(Resctrl)),
    JsonAnnotation(slo.OOM_SCORE_ADJ_SPEC, TypeAdapter(dict[str, Score])),
)


def _is_score(text: str) -> bool:
    digits = text.removeprefix("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= 4
    return is_number and LOWEST_SCORE <= int(text) <= HIGHEST_SCORE


QOS_LABELS: Final = {
    slo.CORE_SCHED_POLICY: (
        frozenset({"", "none", "exclusive"}).__contains__,
        "must be empty, none or exclusive",
    ),
    slo.OOM_SCORE_ADJ: (_is_score, f"must be a whole number, {LOWEST_SCORE} to {HIGHEST_SCORE}"),
}
"""Label -> whether a value is valid, and what it must be."""


AGENT_KEYS: Final = frozenset(
    {annotation.key for annotation in QOS_ANNOTATIONS} | QOS_LABELS.keys()
)
"""Annotations and labels that only an agent reads: plans are the same without them."""


def find_qos_problems(
    labels: Mapping[str, str], annotations: Mapping[str, str]
) -> tuple[Problem, ...]:
    """Return what is wrong with what a pod says to the agent of its node.

    Fields that are not known here are left to the agent, which may be newer.
    """
    return tuple(problem for _, problem in _find_by_key(labels, annotations))


def find_bad_agent_key(
    labels: Mapping[str, str], annotations: Mapping[str, str]
) -> MisspelledKey | None:
    """Return the first key with such a problem, for an event of the pod; None if there is none."""
    if AGENT_KEYS.isdisjoint(labels) and AGENT_KEYS.isdisjoint(annotations):
        return None
    for key, problem in _find_by_key(labels, annotations):
        text = str(problem)
        shown = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
        return MisspelledKey(
            key,
            f"is invalid: {shown}; the pod is placed all the same, and an agent may ignore the key",
        )
    return None


def _find_by_key(
    labels: Mapping[str, str], annotations: Mapping[str, str]
) -> Iterator[tuple[str, Problem]]:
    for annotation in QOS_ANNOTATIONS:
        value = annotation.read(annotations)
        if isinstance(value, InvalidObject):
            yield from ((annotation.key, problem) for problem in value.problems)
    for key, (is_valid, text) in QOS_LABELS.items():
        if key in labels and not is_valid(labels[key]):
            field = format_field(("metadata", "labels", key))
            yield key, Problem(field, cut(labels[key]), text)
