"""Writes the templates of the Helm chart from what kustomize makes of ``manifests/``.

    make chart

The manifests are the source; nobody edits a template. What users may set is put into the objects as
a placeholder, and the placeholder becomes a template expression in the text. Values, their schema
and Chart.yaml are written by hand. The Namespace of the operators is left out: Helm needs it
before the chart.
"""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from koord.sandbox.binaries import KUBECTL
from koord.sandbox.build import ConsoleReporter, build_missing, find_cache

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts" / "koord-operators"
HEADER = "# Made from {source}; edit that, then run make chart.\n"
NAMESPACE = "koord-system"
CONFIG_MAP = re.compile(r"^koord-config-operators-\w+$")
PLACEHOLDER = "TEMPLATE-{}-END"

Document = dict[str, Any]


class Part(NamedTuple):
    """A folder of manifests, and the value that switches it on; none for what is always there."""

    template: str
    source: str
    switch: str = ""


PARTS = (
    Part("operators", "manifests/base"),
    Part("inject", "manifests/overlays/inject", "inject"),
    Part("devices", "manifests/overlays/devices", "devices"),
    Part("device-agent", "manifests/overlays/device-agent", "deviceAgent"),
    Part("network", "manifests/overlays/network", "network"),
    Part("priority", "manifests/overlays/priority", "priority"),
    Part("placeholders", "manifests/overlays/placeholders", "placeholders"),
    Part("metrics", "manifests/overlays/metrics", "metrics"),
)

IMAGE = '"{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"'
CONFIG_NAME = 'koord-config-operators-{{ include "koord.config" . | sha256sum | trunc 10 }}'
EXPRESSIONS = {
    "image": IMAGE,
    "configName": CONFIG_NAME,
    "replicas": "{{ .Values.replicas }}",
}
"""What stands for a value within a line."""
OPTIONAL = ("image.pullPolicy", "imagePullSecrets", "tolerations")
"""Fields that are left out unless they are set."""


def put(name: str) -> str:
    return PLACEHOLDER.format(name)


def find_kubectl() -> Path:
    cache = find_cache()
    build_missing(cache, [KUBECTL], ConsoleReporter())
    return cache.path(KUBECTL)


def build_manifests(kubectl: Path, source: str) -> list[Document]:
    """Return the objects that kustomize makes of a folder."""
    command = [str(kubectl), "kustomize", str(ROOT / source)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603
    own = ("Namespace", NAMESPACE)
    every = (one for one in yaml.safe_load_all(text) if one)
    return [one for one in every if (one["kind"], one["metadata"]["name"]) != own]


def _parametrise_deployment(document: Document) -> None:
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


def _parametrise_config_map(document: Document) -> None:
    document["metadata"]["name"] = put("configName")
    document["data"] = {"config.yaml": put("config")}


PARAMETRISE: dict[str, Callable[[Document], None]] = {
    "Deployment": _parametrise_deployment,
    "DaemonSet": _parametrise_daemon_set,
    "ConfigMap": _parametrise_config_map,
}


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such, which keeps policies readable."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)

_LINE = re.compile(r"^(?P<indent> *)(?P<key>[\w.]+): TEMPLATE-(?P<name>[\w.]+)-END$", re.MULTILINE)


def _write_line(found: re.Match[str]) -> str:
    indent, key, name = found["indent"], found["key"], found["name"]
    if name in EXPRESSIONS:
        return f"{indent}{key}: {EXPRESSIONS[name]}"
    if name == "config":
        return f'{indent}{key}: |\n{indent}  {{{{- include "koord.config" . | nindent 4 }}}}'
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
    if "{{" in text:
        raise ValueError(f"{part.source}: what Helm would take for an expression")
    text = _LINE.sub(_write_line, text).replace(NAMESPACE, "{{ .Release.Namespace }}")
    if part.switch:
        text = f"{{{{- if .Values.{part.switch}.enabled }}}}\n{text}{{{{- end }}}}\n"
    return HEADER.format(source=part.source) + text


def make_templates(kubectl: Path) -> Iterator[tuple[Path, str]]:
    """Yield the path and the text of every template."""
    for part in PARTS:
        documents = build_manifests(kubectl, part.source)
        yield CHART / "templates" / f"{part.template}.yaml", render_template(part, documents)


def main() -> None:
    for path, text in make_templates(find_kubectl()):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
