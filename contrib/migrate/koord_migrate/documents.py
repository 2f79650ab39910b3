"""Documents of YAML files, and what rewriting one gives."""

from typing import Any, Final, NamedTuple

from koord.api.workloads import Document

MALFORMED: Final = (AttributeError, KeyError, TypeError, ValueError)
"""What reading an object of another form raises: the server would refuse it."""


class UntranslatedKey(NamedTuple):
    """A key that could not be translated."""

    where: str
    key: str
    advice: str


class Rewritten(NamedTuple):
    """What takes the place of one document."""

    documents: list[Document]
    lost: list[UntranslatedKey]


def name_of(document: Document) -> str:
    """Return kind and name, for messages."""
    metadata = document.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    return f"{document.get('kind')}/{name}"


def malformed(document: Document, error: Exception) -> UntranslatedKey:
    return UntranslatedKey(
        name_of(document), "object", f"malformed, so left as it is: {error!r}; correct it"
    )


def unshared(value: Any) -> Any:
    """Copy a value; what YAML aliases share becomes separate, because it is changed separately."""
    if isinstance(value, dict):
        return {key: unshared(element) for key, element in value.items()}
    return [unshared(element) for element in value] if isinstance(value, list) else value
