"""Writes values and conditions as CEL, so that no text of a profile can become part of the program.

Every text is a literal of printable ASCII: quotes, backslashes, line ends and everything beyond
are written as escapes. Knows no profiles.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from koord.core.model.selectors import Requirement, SelectorOperator

_PLAIN: Final = frozenset(chr(code) for code in range(0x20, 0x7F)) - {'"', "\\"}
_SURROGATES: Final = range(0xD800, 0xE000)
TRUE: Final = "true"
FALSE: Final = "false"


def write_text(text: str) -> str:
    """Return a literal of a text. Raises ValueError for half of a surrogate pair."""
    return f'"{"".join(map(_write_character, text))}"'


def _write_character(character: str) -> str:
    if character in _PLAIN:
        return character
    code = ord(character)
    if code in _SURROGATES:
        raise ValueError("a text with half of a surrogate pair")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def write_texts(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(write_text, texts))}]"


def write_json(value: Any) -> str:
    """Return a literal of a JSON value; members are dynamic, since CEL's lists have one type."""
    match value:
        case bool():
            return TRUE if value else FALSE
        case int():
            return str(value)
        case str():
            return write_text(value)
        case Mapping():
            members = (f"{write_text(key)}: dyn({write_json(at)})" for key, at in value.items())
            return f"{{{', '.join(members)}}}"
        case list() | tuple():
            return f"[{', '.join(f'dyn({write_json(item)})' for item in value)}]"
        case _:
            raise TypeError(f"no JSON value: {value!r}")


def write_selector(selector: Sequence[Requirement], labels: str) -> str:
    """Return the condition that a selector holds for the map of labels that ``labels`` names."""
    return join_all(_write_requirement(requirement, labels) for requirement in selector)


def _write_requirement(requirement: Requirement, labels: str) -> str:
    key = write_text(requirement.key)
    has_key = f"{key} in {labels}"
    is_listed = f"({has_key} && {labels}[{key}] in {write_texts(requirement.values)})"
    match requirement.operator:
        case SelectorOperator.IN:
            return is_listed
        case SelectorOperator.NOT_IN:
            return f"!{is_listed}"
        case SelectorOperator.EXISTS:
            return f"({has_key})"
        case SelectorOperator.DOES_NOT_EXIST:
            return f"!({has_key})"
        case _:
            raise ValueError(f"no operator of labels: {requirement.operator}")


def join_all(conditions: Iterable[str]) -> str:
    """Return the condition that all hold."""
    return " && ".join(filter(lambda each: each != TRUE, conditions)) or TRUE


def join_any(conditions: Iterable[str]) -> str:
    """Return the condition that one holds."""
    given = list(dict.fromkeys(conditions))
    return TRUE if TRUE in given else " || ".join(given) or FALSE


def escape_pointer(key: str) -> str:
    """Return a key as a part of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def write_patch(op: str, path: str, value: str = "") -> str:
    """Return one operation of a JSON patch; ``path`` and ``value`` are expressions."""
    parts = [f'op: "{op}"', f"path: {path}", *([f"value: {value}"] if value else [])]
    return f"JSONPatch{{{', '.join(parts)}}}"
