"""What helps against a reason of which only the code is known, in plain text."""

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Final

_IN_BRACKETS: Final = re.compile(r" \(\[[^\]]*\]\([^)]*\)\)")
_LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def find_help(code: str) -> str:
    """Return a sentence of the reference; empty if it has none."""
    text = _LINK.sub(r"\1", _IN_BRACKETS.sub("", _helps().get(code, ""))).replace("`", "")
    return f"{text[0].upper()}{text[1:]}." if text else ""


@cache
def _helps() -> dict[str, str]:
    text = files(__package__).joinpath("conditions.toml").read_text(encoding="utf-8")
    entries = tomllib.loads(text)["entry"]
    return {entry["reason"]: entry.get("helps", "") for entry in entries if "reason" in entry}
