"""The built files of the page, as they are served below ``/page/``. Knows no answer.

Every path that is no file is a view of the page: the shell is served, and its script reads the
path. The names of the files carry hashes of what is in them, so they never change.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

ROOT: Final = "/page"
_SHELL: Final = "index.html"
_TYPES: Final = {
    "html": "text/html",
    "js": "text/javascript",
    "css": "text/css",
    "svg": "image/svg+xml",
    "txt": "text/plain",
}
_FOR_EVER: Final = "public, max-age=31536000, immutable"
_ASK_AGAIN: Final = "no-cache"


class PageFile(NamedTuple):
    """What is sent for a path of the page."""

    body: bytes
    content_type: str
    caching: str


@cache
def _read_all() -> Mapping[str, PageFile]:
    by_name = {}
    for file in files("koord.see").joinpath("static").iterdir():
        content_type = _TYPES.get(file.name.rpartition(".")[2])
        if file.is_file() and content_type is not None:
            is_hashed = file.name.count(".") > 1
            caching = _FOR_EVER if is_hashed else _ASK_AGAIN
            by_name[file.name] = PageFile(file.read_bytes(), content_type, caching)
    return by_name


def find_file(name: str) -> PageFile | None:
    """Return a file by its name, or the shell for a view; None if it is not installed.

    What looks like a file and is none is not there: a script that is out of date is no view. Files
    are in no folder, and views of objects are: those may have any name, such as ``train.js``.
    """
    by_name = _read_all()
    if name in by_name or ("/" not in name and name.endswith((".js", ".css"))):
        return by_name.get(name)
    return by_name.get(_SHELL)
