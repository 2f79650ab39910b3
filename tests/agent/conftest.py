"""A machine of its own for each test: a tree of ``/sys`` and the stand-in library."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.agent.machine import STAND_IN, make_sys

from koord.agent.nvidia import Nvidia
from koord.agent.sysfs import Sysfs


@pytest.fixture
def nvml() -> ModuleType:
    """The stand-in library, without a driver until its ``state`` says so."""
    spec = importlib.util.spec_from_file_location("stand_in_nvml", STAND_IN / "pynvml.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def make_nvidia(tmp_path: Path, nvml: ModuleType) -> Callable[..., Nvidia]:
    def make(machine: str, state: dict[str, Any]) -> Nvidia:
        nvml.state.update(state)
        return Nvidia(Sysfs(make_sys(machine, tmp_path / "sys")), lambda: nvml)

    return make
