"""The modules of all packages, parsed once for all tests of names."""

import ast
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_SOURCES = (_ROOT / "operators", *sorted(_ROOT.glob("contrib/*/")))


@cache
def read_modules() -> dict[str, ast.Module]:
    """Return the modules by their full names."""
    trees = {}
    for folder in _SOURCES:
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            trees[name] = ast.parse(path.read_text(encoding="utf-8"))
    return trees


def read_scripts() -> dict[str, ast.Module]:
    """Return what stands beside the packages, by path."""
    return {
        str(path.relative_to(_ROOT)): ast.parse(path.read_text(encoding="utf-8"))
        for folder in ("tools", ".ci", "examples")
        for path in sorted((_ROOT / folder).rglob("*.py"))
    }
