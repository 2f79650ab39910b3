"""Somebody logs in with a browser at a server that many use, and out again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.page.stage import open_stage
from tests.see.reviewer import Reviewer
from tests.see.scene import make_scene

from koord.runtime.reviews import AccessReviews, TokenReviews
from koord.see.token_access import TokenAccess

if TYPE_CHECKING:
    from koord.kube.client import Client


def test_a_token_is_typed_in_and_shows_the_page(browser: Any) -> None:
    """Browsers say from where a form comes, unless a page forbids it: then it looks foreign."""
    reviewer: Any = Reviewer({"the-token": "ann"})
    reviewer.rights = {("ann", "pods", "")}
    client: Client = reviewer
    access = TokenAccess(TokenReviews(client), AccessReviews(client), is_secure=False)
    with open_stage(make_scene(time.time()), access=access) as stage:
        page = browser.new_page()
        page.goto(f"{stage.root}/")
        page.fill("#token", "another")
        page.click("button")
        page.get_by_role("alert").wait_for()
        page.fill("#token", "the-token")
        page.click("button")
        page.get_by_role("heading", level=1).filter(has_text="Overview").wait_for()
        page.close()
