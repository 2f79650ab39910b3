"""Checks the ConfigMap ``slo-controller-config`` in files, by what reads it in a cluster.

Not imported for ``--help``.
"""

from collections.abc import Iterator, Mapping

from koord.api.parse import InvalidObject, Problem
from koord.api.slo_config import NAME, NAMESPACE, find_misspelled
from koord.domains.slo_config import KEYS


def find_config_problems(document: object) -> Iterator[Problem]:
    """Yield what is wrong with it, and fields that nothing reads; nothing for other objects."""
    data = _data_of(document)
    yield from (problem for _, problem in find_misspelled(data, KEYS))
    for key in KEYS:
        text = data.get(key.name)
        if not isinstance(text, str) or not text.strip():
            continue
        value = key.read(text)
        if isinstance(value, InvalidObject):
            yield from value.problems
        else:
            yield from key.find_unknown(text)


def _data_of(document: object) -> Mapping[str, object]:
    if not isinstance(document, dict) or document.get("kind") != "ConfigMap":
        return {}
    meta, data = document.get("metadata"), document.get("data")
    if not isinstance(meta, dict) or not isinstance(data, dict) or meta.get("name") != NAME:
        return {}
    is_there = meta.get("namespace", NAMESPACE) == NAMESPACE
    return {str(key): text for key, text in data.items()} if is_there else {}
