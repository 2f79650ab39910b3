"""The files for k9s: commands exist with their options, columns exist in the CRDs."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.parse_command import parse_command

ROOT = Path(__file__).parents[2]
PLUGINS = yaml.safe_load((ROOT / "examples/k9s/plugins.yaml").read_text("utf-8"))["plugins"]
VIEWS = yaml.safe_load((ROOT / "examples/k9s/views.yaml").read_text("utf-8"))["views"]
VARIABLES = {"NAMESPACE", "NAME", "CONTEXT"}
"""Those of k9s that are used; of one that it does not know it says so, and runs nothing."""
WRITES = {"release", "hold", "run", "device-agent"}
OF_K9S = {"NAMESPACE", "NAME", "AGE"}


@pytest.mark.parametrize("name", PLUGINS)
def test_each_plugin_runs_a_command_that_exists_and_only_reads(name: str) -> None:
    plugin: dict[str, Any] = PLUGINS[name]
    assert plugin.keys() == {
        *("shortCut", "description", "scopes", "command", "args", "background", "confirm")
    }
    dash, script = plugin["args"]
    assert (plugin["command"], dash) == ("sh", "-c")
    line, less = re.split(r" 2>&1 \| ", script)
    assert less == "less -R"
    assert set(re.findall(r"\$(\w+)", script)) <= VARIABLES
    assert WRITES.isdisjoint(line.split())
    values = parse_command(re.sub(r"'?\$(\w+)'?", r"\1", line))
    assert values["context"] == "CONTEXT"
    assert "NAME" in values.values()
    assert values.get("namespace") in ({"NAMESPACE"} if "-n" in line.split() else {"", None})


def test_no_key_means_two_things_of_one_kind() -> None:
    keys = sorted((scope, one["shortCut"]) for one in PLUGINS.values() for scope in one["scopes"])
    assert all(one != other for one, other in pairwise(keys))


def find_crd(view: str) -> dict[str, Any]:
    group, version, plural = view.split("/")
    for path in (ROOT / "crds").glob("*.yaml"):
        for document in yaml.safe_load_all(path.read_text("utf-8")):
            spec = document["spec"]
            if (spec["group"], spec["names"]["plural"]) == (group, plural):
                return next(one for one in spec["versions"] if one["name"] == version)
    raise AssertionError(f"there is no CRD of {view}")


@pytest.mark.parametrize("view", VIEWS)
def test_columns_are_in_the_crd(view: str) -> None:
    version = find_crd(view)
    printed = {column["name"].upper() for column in version["additionalPrinterColumns"]}
    for column in VIEWS[view]["columns"]:
        name, _, path = column.partition("|")[0].partition(":")
        if not path:
            assert name in printed | OF_K9S, column
            continue
        schema = version["schema"]["openAPIV3Schema"]
        for field in path.removeprefix(".").split("."):
            assert field in schema["properties"], column
            schema = schema["properties"][field]
