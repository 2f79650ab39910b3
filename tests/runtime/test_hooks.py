"""Hooks are loaded from entry points, and the example is one."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from tests.builders import make_quota

from koord.core.quota.status import Summary
from koord.runtime.collectors import hook_failures
from koord.runtime.hooks import GROUP, load_hooks

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

EXAMPLE = Path(__file__).parents[2] / "examples/quota-hook"


def install(folder: Path, points: Mapping[str, str]) -> None:
    """Write the metadata of an installed package."""
    info = folder / "hooks-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hooks\nVersion: 1.0\n")
    lines = [f"[{GROUP}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))


def test_no_hooks_by_default() -> None:
    assert not load_hooks()


def test_example_hook_is_loaded_and_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text("utf-8"))["project"]
    install(tmp_path, project["entry-points"][GROUP])
    monkeypatch.syspath_prepend(EXAMPLE)
    monkeypatch.syspath_prepend(tmp_path)
    hooks = load_hooks()
    assert not hooks.failures
    hook = hooks.hooks["largest-unit"]
    team = make_quota("team", max={"nvidia.com/gpu": 8})
    assert hook.check_unit(team, {}, {"nvidia.com/gpu": 4, "cpu": 99}) == ""
    told = "it asks for 6 nvidia.com/gpu, more than half of the max of team"
    assert hook.check_unit(team, {}, {"nvidia.com/gpu": 6}) == told
    assert told in (EXAMPLE / "README.md").read_text("utf-8")
    (condition,) = hooks.augment(Summary("team", max=team.max))
    assert condition.message == "no unit starts that asks for more than 4 nvidia.com/gpu"


def test_broken_hook_is_counted_and_does_not_prevent_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = {"gone": "no_such_module:Hook", "odd": "builtins:dict", "raises": "builtins:open"}
    install(tmp_path, bad)
    monkeypatch.syspath_prepend(tmp_path)
    hooks = load_hooks()
    assert not hooks.hooks
    assert {name for name, operation in hooks.failures if operation == "load"} == set(bad)
    registry = CollectorRegistry()
    registry.register(hook_failures(hooks))
    text = generate_latest(registry).decode()
    assert 'koord_quota_hook_failures_total{hook="gone",operation="load"} 1.0' in text
