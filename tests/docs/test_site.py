"""The site has every page in its navigation; ``make site`` checks its links."""

import re

from tests.docs.test_pages import PAGES, ROOT


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    pages = {page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")}
    assert pages <= listed
