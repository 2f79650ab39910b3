"""Pods from the templates of what makes them: as they will be once the API server has them.

What webhooks and LimitRanges add to pods is not in a template. Knows no kind of owners.
"""

from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from koord.caches import cached_by_text
from koord.core.model.pods import Pod
from koord.kube.kind import TranslatorOptions
from koord.kube.translate.pods import PodTranslator
from koord.kube.wire import PodSpec, WireObjectMeta, WirePod


class _FullPodSpec(PodSpec, gc=False):
    priority_class_name: str = ""


class _Template(Struct, gc=False):
    metadata: WireObjectMeta = msgspec.field(default_factory=WireObjectMeta)
    spec: _FullPodSpec = msgspec.field(default_factory=_FullPodSpec)


class _Resources(Struct, gc=False):
    limits: dict[str, Any] | None = None
    requests: dict[str, Any] | None = None


_template_decoder: Final = msgspec.json.Decoder(_Template)
_resources_decoder: Final = msgspec.json.Decoder(_Resources | None)


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """A pod as a template makes it, and the class that says its priority."""

    pod: Pod
    priority_class: str = ""


class TemplateReader:
    """Reads the templates in objects of one kind."""

    def __init__(self, options: TranslatorOptions) -> None:
        self._pods = PodTranslator(options)

    def read(self, owner: WireObjectMeta, text: bytes, limit: int | None = None) -> PodTemplate:
        """Return the pod that an owner makes of a template, as JSON; it runs for ``limit`` seconds.

        Raises ValueError if the template is malformed.
        """
        template = _template_decoder.decode(text) if text else _Template()
        inner = template.metadata
        meta = WireObjectMeta(
            name=owner.name,
            namespace=owner.namespace,
            labels=inner.labels,
            annotations=inner.annotations,
            creation_timestamp=owner.creation_timestamp,
        )
        _set_defaults(template.spec)
        limits = [limit, template.spec.active_deadline_seconds]
        template.spec.active_deadline_seconds = min(filter(None, limits), default=None)
        pod = self._pods.translate(WirePod(meta, template.spec))
        self._pods.forget(pod)
        return PodTemplate(pod, template.spec.priority_class_name)


def _set_defaults(spec: PodSpec) -> None:
    """Fill in what the API server fills in of pods, and not of templates: requests from limits."""
    for container in (*(spec.containers or ()), *(spec.init_containers or ())):
        container.resources = _request_limits(bytes(container.resources))
    spec.resources = _request_limits(bytes(spec.resources))


@cached_by_text()
def _request_limits(raw: bytes) -> Raw:
    resources = _resources_decoder.decode(raw) if raw else None
    if resources is None or not resources.limits:
        return Raw(raw)
    requests = {**resources.limits, **(resources.requests or {})}
    return Raw(msgspec.json.encode(_Resources(resources.limits, requests)))
