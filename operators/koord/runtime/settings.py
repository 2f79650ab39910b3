"""The configuration file of the operators: one versioned YAML document, validated before use.

Unknown fields and invalid values are rejected with their name and value, so that a typo does not
become a default. There are no secrets in it.
"""

import reprlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import yaml
from pydantic import (
    BeforeValidator,
    Field,
    ValidationError,
    create_model,
)
from pydantic_core import ErrorDetails

from koord.api import Compat
from koord.api.yaml_text import load_yaml
from koord.core.device.vendors import CLASS_OF
from koord.core.engine.scoring import DEFAULT_WEIGHTS, Scoring, ScoringStrategy, Weighed
from koord.core.model.gangs import DEFAULT_HOLD_SECONDS, DEFAULT_WAIT_SECONDS, MatchPolicy
from koord.core.plugins.scarce_resources import ScarceRules
from koord.domains import DOMAINS
from koord.domains.domain import load
from koord.domains.preemption_settings import PreemptionSettings
from koord.domains.quota_settings import QuotaSettings
from koord.domains.section import DNS_SUBDOMAIN, Seconds, Section
from koord.kube.reflector import WatchTimes
from koord.runtime.address import Address, parse_address
from koord.runtime.logs import LogFormat

S = TypeVar("S", bound=Section)

_MAX_BYTES = 64 * 1024


class InvalidConfiguration(ValueError):  # noqa: N818 - what it says is what is wrong
    """The configuration is invalid; ``problems`` has one line for each, field first."""

    def __init__(self, source: str, problems: list[str]) -> None:
        super().__init__("\n  ".join([f"{source} cannot be used:", *problems]))
        self.problems = problems


Weight: TypeAlias = Annotated[int, Field(ge=1, le=100, strict=True)]


class ResourceScore(Section):
    """How one resource is scored."""

    type: ScoringStrategy
    """Spread (LeastAllocated) or pack (MostAllocated)."""
    weight: Weight = 1
    """How much it counts beside other resources."""


Weights: TypeAlias = Annotated[Mapping[str, ResourceScore], Field(max_length=64)]


class FitPlusSettings(Section):
    """A second score of resources that pods ask for, as Koordinator's NodeResourcesFitPlus."""

    resources: Weights = Field(default_factory=dict)
    """Each is scored for pods that request it; off without resources."""
    weight: Weight = 1
    """How much this score counts beside the first."""


class ScarceSettings(Section):
    """Resources to keep for pods that ask for them, as Koordinator's ScarceResourceAvoidance."""

    resources: Annotated[frozenset[str], Field(max_length=64)] = frozenset()
    """Pods that request none of these avoid nodes that have them; `nvidia.com/gpu` stands for all
    GPUs and NPUs. Off without resources."""
    weight: Weight = 1
    """How much this score counts beside the others."""


def _weigh(scores: Mapping[str, ResourceScore]) -> dict[str, Weighed]:
    return {name: Weighed(score.type, score.weight) for name, score in scores.items()}


def _default_scoring() -> dict[str, ResourceScore]:
    return {
        resource: ResourceScore(type=weighed.strategy, weight=weighed.weight)
        for resource, weighed in DEFAULT_WEIGHTS.items()
    }


class _ProcessSettings(Section):
    """What no domain has for itself."""

    api_version: Literal["operators.koordinator.sh/v1alpha1"] = "operators.koordinator.sh/v1alpha1"
    """Must be given."""
    kind: Literal["OperatorConfiguration"] = "OperatorConfiguration"
    """Must be given."""
    scheduler_name: str = Field(default="koord-scheduler", max_length=253, pattern=DNS_SUBDOMAIN)
    """Pods with this `spec.schedulerName` are bound by the operators."""
    scoring: Weights = Field(default_factory=_default_scoring)
    """How nodes are compared, by resource; replaces the built-in strategies as a whole."""
    resource_fit_plus: FitPlusSettings = FitPlusSettings()
    scarce_resources: ScarceSettings = ScarceSettings()
    http_address: Annotated[Address, BeforeValidator(parse_address)] = Address(
        "127.0.0.1", 8080, or_free=True
    )
    """Where metrics and health are served; the manifests set 0.0.0.0:8080. Where nobody sets it and
    that port is taken, any free one is used, which the log says."""
    metrics_authorization: bool = Field(default=False, strict=True)
    """Metrics only for readers with a token and the right to get /metrics."""
    bind_concurrency: int = Field(default=32, ge=1, le=1000, strict=True)
    """How many writes to pods are in flight at the same time. The leader keeps as many connections
    open, 128 at most."""
    watch_timeout: Seconds = Field(default=WatchTimes().most, ge=1, le=300)
    """How long a watch lasts before it is asked for again. One that is silent for a third longer is
    taken for dead, so this is how soon a failure of the network is noticed."""
    default_wait_seconds: int = Field(default=DEFAULT_WAIT_SECONDS, ge=1, strict=True)
    """For gangs that do not say how long they may wait for a place before it is reported."""
    default_match_policy: MatchPolicy = MatchPolicy.ONCE_SATISFIED
    """For gangs that do not say which members count."""
    keep_room_seconds: int = Field(default=DEFAULT_HOLD_SECONDS, ge=0, strict=True)
    """How long room is kept for a gang at most, whatever it says; 0 keeps none."""


def _find_sections() -> dict[str, Any]:
    sections = {
        field: load(reference) for domain in DOMAINS for field, reference in domain.settings.items()
    }
    return {field: (section, section()) for field, section in sections.items()}


_AllSections: Any = create_model("_AllSections", __base__=_ProcessSettings, **_find_sections())


class Settings(_AllSections):
    """The whole configuration; defaults suit a single machine."""

    compat: Compat = Compat.NONE
    """Follow Koordinator's behaviour where ours deliberately differs."""
    log_format: LogFormat = LogFormat.TEXT

    def of(self, section: type[S]) -> S:
        """Return the section of a domain."""
        fields = type(self).model_fields
        return next(value for field in fields if isinstance(value := getattr(self, field), section))

    @property
    def watch_times(self) -> WatchTimes:
        return WatchTimes(self.watch_timeout)

    @property
    def reclaims_after(self) -> float | None:
        """How many seconds over-use lasts before it is reclaimed; None: it is not."""
        quota = self.of(QuotaSettings)
        is_on = quota.reclaims(by_default=self.compat is not Compat.KOORDINATOR)
        return quota.delay_evict_time if is_on else None

    @property
    def evicts(self) -> bool:
        """Whether pods are evicted for others; gangs restart as a whole with any settings."""
        return self.reclaims_after is not None or self.of(PreemptionSettings).respect_budgets

    def make_scoring(self) -> Scoring:
        plus = self.resource_fit_plus
        return Scoring(_weigh(self.scoring), _weigh(plus.resources), plus.weight)

    def all_plan_options(self) -> Iterable[object]:
        """Return what plugins look up of all settings."""
        for field in type(self).model_fields:
            value = getattr(self, field)
            if isinstance(value, Section):
                yield from value.plan_options()
        yield self.scarce_rules

    @property
    def scarce_rules(self) -> ScarceRules:
        scarce = self.scarce_resources
        class_of = None if self.compat is Compat.KOORDINATOR else CLASS_OF
        return ScarceRules(scarce.resources, scarce.weight, class_of)


def load_settings(path: Path) -> Settings:
    """Read and validate a configuration file. Raises InvalidConfiguration with all problems."""
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise InvalidConfiguration(str(path), [str(error.strerror)]) from error
    if len(text) > _MAX_BYTES:
        raise InvalidConfiguration(str(path), [f"it is larger than {_MAX_BYTES} bytes"])
    return parse_settings(text, str(path))


def parse_settings(text: bytes | str, source: str) -> Settings:
    try:
        document = load_yaml(text)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidConfiguration(source, [f"it is not YAML: {error}"]) from error
    if not isinstance(document, dict):
        raise InvalidConfiguration(source, ["it is not one YAML mapping"])
    missing = [
        f"{field}: must be given" for field in ("apiVersion", "kind") if field not in document
    ]
    if missing:
        raise InvalidConfiguration(source, missing)
    try:
        return Settings.model_validate(document)
    except ValidationError as error:
        raise InvalidConfiguration(source, _problems(error)) from error


def _problems(error: ValidationError) -> list[str]:
    return [
        f"{'.'.join(map(str, problem['loc']))}: {_problem_of(problem)}"
        for problem in error.errors(include_url=False)
    ]


def _problem_of(problem: ErrorDetails) -> str:
    if problem["type"] == "extra_forbidden":
        return "no such field"
    message = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return f"{reprlib.repr(problem['input'])} {message}"
