"""Finds the files of the checkout that the demo applies, the same that a user would."""

from dataclasses import dataclass
from pathlib import Path

from koord.demo.errors import MissingFilesError

_CHECKOUT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Files:
    """Paths as one would type them here."""

    crds: Path
    manifests: Path
    examples: Path


def find_files(checkout: Path = _CHECKOUT) -> Files:
    """Return the paths; raise `MissingFilesError` if this is an installation without them."""
    files = Files(
        crds=checkout / "crds",
        manifests=checkout / "manifests" / "base",
        examples=checkout / "examples" / "demo",
    )
    for folder in (files.crds, files.manifests, files.examples):
        if not folder.is_dir():
            raise MissingFilesError(
                f"there is no {folder}: the demo runs from a checkout of the project, "
                "because it applies the files that are shipped there"
            )
    return Files(_shorten(files.crds), _shorten(files.manifests), _shorten(files.examples))


def _shorten(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
