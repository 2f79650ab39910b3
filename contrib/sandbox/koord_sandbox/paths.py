"""Directories of the sandbox, after the XDG base directory specification, and private files.

Binaries are a cache (they can be built again), running sandboxes are state: their keys and data
are kept until `koord sandbox down`.
"""

import os
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
"""The checkout of the project, if this is not installed elsewhere."""
_APPLICATION = "koord-operators"


def cache_directory() -> Path:
    """Return where binaries are, and the Go toolchain if the machine has none."""
    return _xdg("XDG_CACHE_HOME", ".cache")


def state_directory() -> Path:
    return _xdg("XDG_STATE_HOME", ".local/state") / "sandboxes"


def _xdg(variable: str, default: str) -> Path:
    configured = os.environ.get(variable, "")
    # The specification says that a relative path is to be ignored.
    base = Path(configured) if configured.startswith("/") else Path.home() / default
    return base / _APPLICATION


def controlplane_module() -> Path | None:
    """Return the Go module that pins the binaries; only a source checkout has it."""
    module = CHECKOUT / "tools" / "controlplane"
    return module if (module / "go.mod").is_file() else None


def write_privately(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read; nobody sees it half written."""
    partial = path.with_name(f".{path.name}.partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    partial.replace(path)
