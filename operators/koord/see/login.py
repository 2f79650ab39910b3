"""The form where people give a token: plain HTML, because it is there before any script may ask.

Nothing that somebody sent is in it but the reason of a refusal, as text.
"""

from html import escape as escape_html
from http import HTTPStatus
from typing import Final

from aiohttp import web

from koord.plain_text import escape

_FORM: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>koord: log in</title>
<h1>koord</h1>
<form method="post" action="/session" autocomplete="off">
<p><label for="token">A token of yours, such as
<code>kubectl create token NAME --namespace NAMESPACE</code> prints:</label></p>
<p><input id="token" name="token" type="password" size="60" required autofocus></p>
<p><button>Log in</button></p>
</form>
{problem}
<p>You see by name what the token may list. It stays in the memory of this server, half a day
at most.</p>
</html>
"""


def make_login(status: int = HTTPStatus.OK, problem: str = "") -> web.Response:
    """Return the form; ``problem`` says why it is shown again."""
    text = f'<p role="alert">{escape_html(escape(problem))}</p>' if problem else ""
    return web.Response(
        status=status,
        text=_FORM.format(problem=text),
        content_type="text/html",
        headers={"Cache-Control": "no-store"},
    )
