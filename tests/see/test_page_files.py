"""The built page: who gets it, in which form, and that it is what its sources make."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

from tests.see.test_app import open_server

import koord.see
from koord.see.app import BASE

ROOT = Path(__file__).parents[2]
BUILT = Path(koord.see.__file__).parent / "static"
SOURCES = sorted((ROOT / "page" / "src").rglob("*.ts*"))
MOST_BYTES = 100 * 1024
MOST_FILES = 4


async def get(path: str) -> tuple[int, str, dict[str, str]]:
    """Ask without a key."""
    async with (
        open_server() as client,
        client.session.get(f"{client.root}{path}", allow_redirects=False) as response,
    ):
        return response.status, await response.text(), dict(response.headers)


def names_in_shell() -> set[str]:
    shell = (BUILT / "index.html").read_text(encoding="utf-8")
    return set(re.findall(r'"/page/([^"]+)"', shell))


async def test_every_path_of_a_view_is_the_shell_and_needs_no_key() -> None:
    shell = (BUILT / "index.html").read_text(encoding="utf-8")
    objects = ("/page/unit/a/podgroup/b.js", "/page/node/n.css")
    for path in ("/page/", "/page/queue?class=Room", *objects):
        status, text, headers = await get(path)
        assert (status, text) == (200, shell), path
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["Cache-Control"] == "no-cache"
    assert (await get(f"{BASE}/overview"))[0] == 401


async def test_files_with_a_hash_are_kept_for_ever_and_others_are_not_there() -> None:
    for name in names_in_shell():
        status, _, headers = await get(f"/page/{name}")
        assert (status, "immutable" in headers["Cache-Control"]) == (200, True), name
    assert (await get("/page/page.0123456789.js"))[0] == 404
    assert (await get("/page/../app.py"))[0] in {401, 404}


async def test_the_root_leads_to_the_page() -> None:
    for path in ("/", "/page"):
        status, _, headers = await get(path)
        assert (status, headers["Location"]) == (302, "/page/")


def test_names_of_built_files_have_the_hash_of_what_is_in_them() -> None:
    names = names_in_shell()
    assert {name for name in names if (BUILT / name).is_file()} == names
    for name in names:
        digest = hashlib.sha256((BUILT / name).read_bytes()).hexdigest()
        assert name.split(".")[1] == digest[:10]
    built = {path.name for path in BUILT.iterdir()}
    assert built == {*names, "index.html", "LICENSES.txt"}


def test_the_page_is_small() -> None:
    files = [BUILT / "index.html", *(BUILT / name for name in names_in_shell())]
    assert len(files) <= MOST_FILES
    assert sum(len(gzip.compress(path.read_bytes())) for path in files) <= MOST_BYTES


def test_the_licenses_of_what_is_in_it_are_with_it() -> None:
    text = (BUILT / "LICENSES.txt").read_text(encoding="utf-8")
    assert text.count("MIT License") >= 3
    assert {"preact", "@preact/signals"} <= set(re.findall(r"^(\S+) \d", text, re.MULTILINE))


def test_sources_make_elements_and_no_markup() -> None:
    assert SOURCES
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        for wrong in ("innerHTML", "dangerouslySet", "eval(", "new Function", "document.write"):
            assert wrong not in text, (path.name, wrong)
        assert not re.search(r"https?://", text), path.name
