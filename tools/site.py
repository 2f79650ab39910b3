"""Hooks of mkdocs: pages from outside of docs/, and code blocks as this repository writes them.

Files outside of docs/ that pages link become pages: README.md, CHANGELOG.md, those of examples and
skills.
"""

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any, Final

from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = {
    "README.md": "start.md",
    "CHANGELOG.md": "changes.md",
    "examples/headlamp/README.md": "examples/headlamp.md",
    "examples/k9s/README.md": "examples/k9s.md",
    "examples/quota-hook/README.md": "examples/quota-hook.md",
    "skills/koord-why/SKILL.md": "skills/koord-why.md",
}
"""Path in the repository -> path among the pages."""
_LINK: Final = re.compile(r"(\]\()(?!\w+:|#)([^)#\s]+)")
_TITLED: Final = re.compile(r"^```(\w+) +(\S.*)$", re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from outside of docs/."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Point links at pages, and give code blocks their titles."""
    source = {there: path for path, there in PAGES.items()}.get(page.file.src_uri)
    here = dirname(source if source is not None else join("docs", page.file.src_uri))

    def move(link: re.Match[str]) -> str:
        target = normpath(join(here, link[2]))
        page_path = PAGES.get(target, target.removeprefix("docs/"))
        return link[1] + relpath(page_path, dirname(page.file.src_uri) or ".")

    return _TITLED.sub(r'```\1 title="\2"', _LINK.sub(move, markdown))
