"""Writes measurements of long tests to ``build/faults``."""

import json
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).parents[2] / "build" / "faults"


def write_figures(name: str, figures: dict[str, Any]) -> None:
    """Write one file per scenario, ``NAME.json``; a later call replaces it."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    (DIRECTORY / f"{name}.json").write_text(json.dumps(figures, indent=1) + "\n")
