"""``koord migrate``: rewrites files of other schedulers. Asks no cluster; rules: `koord.api`."""

import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer
import yaml
from typing_extensions import override

from koord.api.manifest_text import MAX_FILE_BYTES, UnreadableError, read_documents
from koord.cli.common import ExitCode, fail, say, write_document
from koord.cli.output import count_of, safe_yaml
from koord_migrate.documents import Rewritten
from koord_migrate.koordinator import to_koordinator
from koord_migrate.rewrite import migrate as to_ours

_LOST: Final = 1
_SEPARATOR: Final = re.compile(r"^---(?=\s|$)[ \t]*\n?", re.MULTILINE)
_EXPONENT: Final = re.compile(r"^[-+]?[\d.]+[eE][-+]?\d+$")
"""A number to kubectl, and not to PyYAML."""


class ManifestDialect(StrEnum):
    """Whose manifests are written."""

    OURS = "koord-operators"
    KOORDINATOR = "koordinator"


class Chunk(NamedTuple):
    """One document of a file, as written and as read; comments alone are read as nothing."""

    file: str
    text: str
    document: Any


def migrate(
    files: Annotated[list[str], typer.Argument(help="YAML files; - for standard input.")],
    to: Annotated[
        ManifestDialect, typer.Option(help="Whose manifests to write.")
    ] = ManifestDialect.OURS,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Change the files, instead of printing them.")
    ] = False,
) -> None:
    """Rewrite manifests of Volcano, Kueue, KAI and others to ours, or to Koordinator.

    For example:

      koord migrate job.yaml queue.yaml > ours.yaml

      koord migrate --to koordinator --in-place gang.yaml
    """
    if in_place and "-" in files:
        fail("--in-place needs files, not -", ExitCode.USAGE)
    chunks = [chunk for file in files for chunk in _read(file)]
    read = [chunk.document for chunk in chunks if isinstance(chunk.document, dict)]
    rewrite = to_koordinator if to is ManifestDialect.KOORDINATOR else to_ours
    made = iter(rewrite(read))
    results = [next(made) if isinstance(chunk.document, dict) else None for chunk in chunks]
    pairs = list(zip(chunks, results, strict=True))
    if in_place:
        for file in files:
            _change(file, _render([pair for pair in pairs if pair[0].file == file]))
    else:
        write_document(_render(pairs))
    raise typer.Exit(_LOST if _report(chunks, results) else 0)


def _read(file: str) -> list[Chunk]:
    try:
        with sys.stdin.buffer if file == "-" else Path(file).open("rb") as stream:
            text = stream.read(MAX_FILE_BYTES + 1).decode("utf-8")
        list(read_documents(text))  # errors name a line of the whole file
        return [
            Chunk(file, part, next(read_documents(part), None)) for part in _SEPARATOR.split(text)
        ]
    except (OSError, UnicodeDecodeError, UnreadableError) as error:
        fail(f"{file}: {error}", ExitCode.USAGE)


def _render(pairs: list[tuple[Chunk, Rewritten | None]]) -> str:
    """Join documents; those that did not change are as they were, with their comments."""
    parts: list[str] = []
    for chunk, result in pairs:
        if result is None or result.documents == [chunk.document]:
            parts += [chunk.text] if chunk.text.strip() else []
        else:
            parts += [_dump(document) for document in result.documents]
    return "---\n".join(part if part.endswith("\n") else f"{part}\n" for part in parts)


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such, and quotes what kubectl takes for a number."""

    @override
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else '"' if _EXPONENT.match(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def _dump(document: Any) -> str:
    options: dict[str, Any] = {"Dumper": _Dumper, "sort_keys": False, "width": 10_000}
    return safe_yaml(lambda wide: yaml.dump(document, allow_unicode=wide, **options))


def _change(file: str, text: str) -> None:
    path = Path(file)
    if text != path.read_text(encoding="utf-8"):
        path.write_text(text, encoding="utf-8")


def _report(chunks: list[Chunk], results: list[Rewritten | None]) -> int:
    """Print to standard error what was lost; return how much."""
    lost = changed = objects = 0
    for chunk, result in zip(chunks, results, strict=True):
        if result is None:
            continue
        objects += 1
        changed += result.documents != [chunk.document]
        for where, key, advice in dict.fromkeys(result.lost):
            lost += 1
            say(f"{chunk.file}: {where}: {key}: {advice}", err=True)
    say(
        f"{count_of(objects, 'object')} read, {changed} rewritten, "
        f"{count_of(lost, 'remark')} above",
        err=True,
    )
    return lost
