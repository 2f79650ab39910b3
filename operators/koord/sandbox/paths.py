"""Where the sandbox keeps its things, after the XDG base directory specification.

Binaries are a cache (they can be built again), running sandboxes are state (their keys and data
live there until `koord sandbox down`). Nothing here touches the disk.
"""

import os
from pathlib import Path

_APPLICATION = "koord-operators"


def cache_directory() -> Path:
    """Binaries, and the Go toolchain where the machine has none."""
    return _xdg("XDG_CACHE_HOME", ".cache")


def state_directory() -> Path:
    """One directory per sandbox."""
    return _xdg("XDG_STATE_HOME", ".local/state") / "sandboxes"


def _xdg(variable: str, default: str) -> Path:
    configured = os.environ.get(variable, "")
    # The specification says that a relative path is to be ignored.
    base = Path(configured) if configured.startswith("/") else Path.home() / default
    return base / _APPLICATION


def controlplane_module() -> Path | None:
    """Return the Go module that pins the binaries; only a source checkout has it."""
    checkout = Path(__file__).resolve().parents[3]
    module = checkout / "tools" / "controlplane"
    return module if (module / "go.mod").is_file() else None
