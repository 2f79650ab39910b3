"""Writes the templates of the Helm chart from what kustomize makes of ``manifests/``.

    make chart

The manifests are the source; nobody edits a template. What users may set is put into the objects as
a placeholder, and the placeholder becomes a template expression in the text. Values and Chart.yaml
are written by hand, and so is their schema, except for the configuration of the operators: that is
what ``koord run`` accepts. The Namespace of the operators is left out: Helm needs it before the
chart.
"""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import AliasChoices, BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from koord.runtime.settings import Settings
from koord_sandbox.binaries import KUBECTL
from koord_sandbox.build import ConsoleReporter, build_missing, find_cache

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts" / "koord-operators"
SCHEMA = CHART / "values.schema.json"
HEADER = "# Made from {source}; edit that, then run make chart.\n"
NAMESPACE = "koord-system"
CONFIG_MAP = re.compile(r"^koord-config-operators-\w+$")
SERVE_CONFIG_MAP = re.compile(r"^koord-config-serve-\w+$")
ANSWERS_CONFIG_MAP = re.compile(r"^koord-config-answers-\w+$")
SERVE = "koord-serve"
ANSWERS = "koord-answers"
PLACEHOLDER = "TEMPLATE-{}-END"

Document = dict[str, Any]


class Part(NamedTuple):
    """A source of manifests, and the value that switches it on; none for what is always there.

    The source is a folder with a kustomization, or a file of ``manifests/monitoring``. ``without``
    is a folder whose objects it has, too, and that is a part of its own.
    """

    template: str
    source: str
    switch: str = ""
    without: str = ""


PARTS = (
    Part("operators", "manifests/base", without="manifests/overlays/eviction"),
    Part("eviction", "manifests/overlays/eviction", "eviction"),
    Part("inject", "manifests/overlays/inject", "inject"),
    Part("enforce", "manifests/overlays/enforce", "enforce"),
    Part("devices", "manifests/overlays/devices", "devices"),
    Part("device-agent", "manifests/overlays/device-agent", "deviceAgent"),
    Part("network", "manifests/overlays/network", "network"),
    Part("priority", "manifests/overlays/priority", "priority"),
    Part("priority-classes", "manifests/overlays/priority-classes", "priorityClasses"),
    Part("placeholders", "manifests/overlays/placeholders", "placeholders"),
    Part("metrics", "manifests/overlays/metrics", "metrics"),
    Part("autoscaler", "manifests/overlays/autoscaler", "autoscaler"),
    Part("suspend", "manifests/overlays/suspend", "suspend"),
    Part("node-slo", "manifests/overlays/node-slo", "nodeSlo"),
    Part("amplification", "manifests/overlays/amplification", "amplification"),
    Part("owners", "manifests/overlays/owners", "owners"),
    Part("colocation", "manifests/overlays/colocation", "colocation"),
    Part("slo-config", "manifests/overlays/slo-config", "sloConfig"),
    Part("explanations", "manifests/overlays/explanations", "explanations"),
    Part("users", "manifests/overlays/users", "users"),
    Part("profiles", "manifests/overlays/profiles", "profiles"),
    Part("qos", "manifests/overlays/qos", "qos"),
    Part("serve", "manifests/overlays/serve", "serve"),
    Part("aggregation", "manifests/overlays/aggregation", "aggregation"),
    Part("pod-monitor", "manifests/monitoring/pod-monitor.yaml", "monitoring.podMonitor"),
    Part("alerts", "manifests/monitoring/alerts.yaml", "monitoring.alerts"),
    Part("alerts-teams", "manifests/monitoring/alerts-teams.yaml", "monitoring.teamAlerts"),
    Part("dashboard", "manifests/monitoring/dashboard.json", "monitoring.dashboard"),
    Part(
        "dashboard-teams", "manifests/monitoring/dashboard-teams.json", "monitoring.teamDashboard"
    ),
)

IMAGE = '"{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"'
ANSWERS_CONFIG_NAME = (
    'koord-config-answers-{{ include "koord.answersConfig" . | sha256sum | trunc 10 }}'
)
SERVE_CONFIG_NAME = 'koord-config-serve-{{ include "koord.serveConfig" . | sha256sum | trunc 10 }}'
CONFIG_NAME = 'koord-config-operators-{{ include "koord.config" . | sha256sum | trunc 10 }}'
EXPRESSIONS = {
    "image": IMAGE,
    "configName": CONFIG_NAME,
    "serveConfigName": SERVE_CONFIG_NAME,
    "answersConfigName": ANSWERS_CONFIG_NAME,
    "replicas": "{{ .Values.replicas }}",
    "serveStrategy": '{{ include "koord.serveStrategy" . }}',
}
"""What stands for a value within a line."""
VOLUME_CLAIM = "serve.volumeClaim"
ITEMS = {
    "serveMount": "{name: data, mountPath: /data}",
    "serveVolume": "{name: data, persistentVolumeClaim: {claimName: {{ . | quote }}}}",
}
"""Items of lists that are there if the store of answers has a volume."""
INCLUDED = ("config", "serveConfig", "answersConfig")
"""Texts that a helper of the chart makes."""
OPTIONAL = ("image.pullPolicy", "imagePullSecrets", "tolerations", "aggregation.caBundle")
"""Fields that are left out unless they are set."""
LINKS = ('"links": []', '"links": {{ include "koord.pageLinks" . }}')
"""Of a dashboard: to the page, where its address is known."""
CLOSED = {"apiVersion": {"not": {}}, "kind": {"not": {}}}
"""Fields of the configuration that the chart writes itself."""
NARROWED = {"httpAddress": {"type": "string", "pattern": ":8080$"}}
"""Those of which the manifests know the value: probes use that port."""


def put(name: str) -> str:
    return PLACEHOLDER.format(name)


def find_kubectl() -> Path:
    cache = find_cache()
    build_missing(cache, [KUBECTL], ConsoleReporter())
    return cache.path(KUBECTL)


def make_rule(text: str, name: str = "koord-operators") -> Document:
    """Return the alerts as an object of the Prometheus Operator."""
    metadata = {"name": name, "namespace": NAMESPACE, "labels": dict(LABELS)}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": metadata,
        "spec": yaml.safe_load(text),
    }


def make_dashboard(text: str, name: str = "koord-operators") -> Document:
    """Return the dashboard as Grafana's sidecar looks for it."""
    title = "koord-dashboard" if name == "koord-operators" else f"{name}-dashboard"
    labels = LABELS | {"grafana_dashboard": "1"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": title, "namespace": NAMESPACE, "labels": labels},
        "data": {f"{name}.json": text},
    }


LABELS = {"app.kubernetes.io/part-of": "koord-operators"}
OF_FILES: dict[str, Callable[[str], Document]] = {
    "pod-monitor.yaml": yaml.safe_load,
    "alerts.yaml": make_rule,
    "alerts-teams.yaml": partial(make_rule, name="koord-teams"),
    "dashboard.json": make_dashboard,
    "dashboard-teams.json": partial(make_dashboard, name="koord-teams"),
}


def build_manifests(kubectl: Path, source: str) -> list[Document]:
    """Return the objects that kustomize makes of a folder, or that a file stands for."""
    if (path := ROOT / source).is_file():
        return [OF_FILES[path.name](path.read_text(encoding="utf-8"))]
    command = [str(kubectl), "kustomize", str(ROOT / source)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603
    own = ("Namespace", NAMESPACE)
    documents = (document for document in yaml.safe_load_all(text) if document)
    return [
        document
        for document in documents
        if (document["kind"], document["metadata"]["name"]) != own
    ]


def build_part(kubectl: Path, part: Part) -> list[Document]:
    """Return the objects of a part."""
    apart = build_manifests(kubectl, part.without) if part.without else []
    return [document for document in build_manifests(kubectl, part.source) if document not in apart]


def _parametrise_serve(document: Document) -> None:
    pod = document["spec"]["template"]["spec"]
    container = pod["containers"][0]
    container["image"] = put("image")
    container["imagePullPolicy"] = put("image.pullPolicy")
    container["resources"] = put("serve.resources")
    container["volumeMounts"].append(put("serveMount"))
    pod["imagePullSecrets"] = put("imagePullSecrets")
    for volume in pod["volumes"]:
        if SERVE_CONFIG_MAP.match(volume.get("configMap", {}).get("name", "")):
            volume["configMap"]["name"] = put("serveConfigName")
    pod["volumes"].append(put("serveVolume"))
    document["spec"]["strategy"] = put("serveStrategy")


def _parametrise_answers(document: Document) -> None:
    pod = document["spec"]["template"]["spec"]
    container = pod["containers"][0]
    container["image"] = put("image")
    container["imagePullPolicy"] = put("image.pullPolicy")
    container["resources"] = put("aggregation.resources")
    pod["imagePullSecrets"] = put("imagePullSecrets")
    for volume in pod["volumes"]:
        if ANSWERS_CONFIG_MAP.match(volume.get("configMap", {}).get("name", "")):
            volume["configMap"]["name"] = put("answersConfigName")


def _parametrise_api_service(document: Document) -> None:
    document["spec"]["caBundle"] = put("aggregation.caBundle")


def _parametrise_deployment(document: Document) -> None:
    apart = {SERVE: _parametrise_serve, ANSWERS: _parametrise_answers}
    if document["metadata"]["name"] in apart:
        apart[document["metadata"]["name"]](document)
        return
    document["spec"]["replicas"] = put("replicas")
    pod = document["spec"]["template"]["spec"]
    container = pod["containers"][0]
    container["image"] = put("image")
    container["imagePullPolicy"] = put("image.pullPolicy")
    container["resources"] = put("resources")
    pod["imagePullSecrets"] = put("imagePullSecrets")
    pod["nodeSelector"] = put("nodeSelector")
    pod["tolerations"] = put("tolerations")
    for volume in pod["volumes"]:
        if CONFIG_MAP.match(volume.get("configMap", {}).get("name", "")):
            volume["configMap"]["name"] = put("configName")


def _parametrise_daemon_set(document: Document) -> None:
    pod = document["spec"]["template"]["spec"]
    container = pod["containers"][0]
    container["image"] = put("image")
    container["imagePullPolicy"] = put("image.pullPolicy")
    container["resources"] = put("deviceAgent.resources")
    pod["imagePullSecrets"] = put("imagePullSecrets")


def _parametrise_monitoring(document: Document) -> None:
    document["metadata"]["labels"]["more"] = put("monitoring.labels")


def _parametrise_config_map(document: Document) -> None:
    if SERVE_CONFIG_MAP.match(document["metadata"]["name"]):
        document["metadata"]["name"] = put("serveConfigName")
        document["data"] = {"config.yaml": put("serveConfig")}
    if ANSWERS_CONFIG_MAP.match(document["metadata"]["name"]):
        document["metadata"]["name"] = put("answersConfigName")
        document["data"] = {"config.yaml": put("answersConfig")}
    if not CONFIG_MAP.match(document["metadata"]["name"]):
        return
    document["metadata"]["name"] = put("configName")
    document["data"] = {"config.yaml": put("config")}


PARAMETRISE: dict[str, Callable[[Document], None]] = {
    "APIService": _parametrise_api_service,
    "Deployment": _parametrise_deployment,
    "DaemonSet": _parametrise_daemon_set,
    "ConfigMap": _parametrise_config_map,
    "PodMonitor": _parametrise_monitoring,
    "PrometheusRule": _parametrise_monitoring,
}


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such, which keeps policies readable."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)

_LINE = re.compile(r"^(?P<indent> *)(?P<key>[\w.]+): TEMPLATE-(?P<name>[\w.]+)-END$", re.MULTILINE)


_ITEM = re.compile(r"^(?P<indent> *)- TEMPLATE-(?P<name>\w+)-END$", re.MULTILINE)


def _write_item(match: re.Match[str]) -> str:
    lines = f"{{{{- with .Values.{VOLUME_CLAIM} }}}}", f"- {ITEMS[match['name']]}", "{{- end }}"
    return "\n".join(match["indent"] + line for line in lines)


def _write_line(match: re.Match[str]) -> str:
    indent, key, name = match["indent"], match["key"], match["name"]
    if name in EXPRESSIONS:
        return f"{indent}{key}: {EXPRESSIONS[name]}"
    if name in INCLUDED:
        return f'{indent}{key}: |\n{indent}  {{{{- include "koord.{name}" . | nindent 4 }}}}'
    if name == "monitoring.labels":  # more of the same mapping
        added = f"{{{{- toYaml . | nindent {len(indent)} }}}}"
        return f"{indent}{{{{- with .Values.{name} }}}}{added}{{{{- end }}}}"
    value = f"{{{{- toYaml .Values.{name} | nindent {len(indent) + 2} }}}}"
    if name not in OPTIONAL:
        return f"{indent}{key}:\n{indent}  {value}"
    lines = (
        f"{{{{- with .Values.{name} }}}}",
        f"{key}:",
        f"  {{{{- toYaml . | nindent {len(indent) + 2} }}}}",
        "{{- end }}",
    )
    return "\n".join(f"{indent}{line}" for line in lines)


def render_template(part: Part, documents: list[Document]) -> str:
    for document in documents:
        if document["kind"] in PARAMETRISE:
            PARAMETRISE[document["kind"]](document)
    text = yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=10_000)
    text = text.replace("{{", '{{ "{{" }}')  # of Prometheus and Grafana, to Helm it is text
    text = _ITEM.sub(_write_item, text)
    text = _LINE.sub(_write_line, text).replace(NAMESPACE, "{{ .Release.Namespace }}")
    text = text.replace(*LINKS)
    if part.switch:
        text = f"{{{{- if .Values.{part.switch}.enabled }}}}\n{text}{{{{- end }}}}\n"
    return HEADER.format(source=part.source) + text


def make_templates(kubectl: Path) -> Iterator[tuple[Path, str]]:
    """Yield the path and the text of every template."""
    for part in PARTS:
        documents = build_part(kubectl, part)
        yield CHART / "templates" / f"{part.template}.yaml", render_template(part, documents)


class _Generator(GenerateJsonSchema):
    """Describes what is written: texts that are parsed are texts, and old names are names."""

    def function_before_schema(
        self, schema: core_schema.BeforeValidatorFunctionSchema
    ) -> JsonSchemaValue:
        _ = self, schema
        return {"type": "string"}


def _list_sections(section: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield section
    for field in section.model_fields.values():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _list_sections(field.annotation)


def _make_config_schema() -> Document:
    """Return the definitions of the configuration, of which ``Settings`` is the whole."""
    schema = Settings.model_json_schema(schema_generator=_Generator)
    definitions = {**schema.pop("$defs"), Settings.__name__: schema}
    for section in _list_sections(Settings):
        properties = definitions[section.__name__]["properties"]
        for field in section.model_fields.values():
            if isinstance(names := field.validation_alias, AliasChoices):
                first, *aliases = (str(name) for name in names.choices)
                properties |= dict.fromkeys(aliases, properties[first])
    schema["properties"] |= CLOSED | NARROWED
    schema.pop("required", None)
    return {name: _strip(definition) for name, definition in sorted(definitions.items())}


def _strip(schema: Document) -> Document:
    """Return a schema without what is for readers: they have docs/reference/configuration.md."""
    return {
        key: {name: _strip(property_schema) for name, property_schema in value.items()}
        if key == "properties"
        else _strip(value)
        if isinstance(value, dict)
        else value
        for key, value in schema.items()
        if key not in {"title", "description", "default"}
    }


def make_schema() -> str:
    """Return the schema of the values with the present definitions of the configuration.

    Names of definitions that are written by hand begin with a small letter.
    """
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    own = {name: definition for name, definition in schema["$defs"].items() if name[0].islower()}
    schema["$defs"] = own | _make_config_schema()
    return json.dumps(schema, indent=2) + "\n"


def main() -> None:
    SCHEMA.write_text(make_schema(), encoding="utf-8")
    for path, text in make_templates(find_kubectl()):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
