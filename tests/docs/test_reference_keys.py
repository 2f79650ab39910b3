"""Every label, annotation and resource name that the code knows has an entry of the reference.

They are read from the sources and from the values that modules make of them, so a new one fails
here until `koord.api.keys` describes it.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules, walk_packages

import pytest

import koord
import koord_sandbox
from koord.api import keys
from koord.reference.entries import EntryKind, list_entries

PACKAGE = Path(koord.__file__).parent
DOMAINS = r"koordinator\.sh|scheduling\.sigs\.k8s\.io|kueue\.x-k8s\.io|hami\.io"
VENDORS = r"nvidia\.com|huawei\.com|cambricon\.com|metax-tech\.com"
KEY = re.compile(rf"([a-z]+\.)*({DOMAINS}|{VENDORS})/[\w.-]*\w-?")
VERSION = re.compile(r".*/v\d+((alpha|beta)\d+)?")
NOT_OURS_TO_DESCRIBE = {
    "operators.koordinator.sh/sandbox-shape": "a label of the sandbox's nodes",
    "nvidia.com/mig-": "the beginning of names of resources",
    "nvidia.com/gpu.product": "a label by which a model is called, where ours is missing",
    "kueue.x-k8s.io/queue-name": "who resumes a suspended Job; decides nothing",
}
DESCRIBED = {one.key for one in list_entries() if one.kind is EntryKind.KEY}


def is_key(text: str) -> bool:
    return bool(KEY.fullmatch(text)) and not VERSION.fullmatch(text)


def texts_in(value: object) -> Iterator[str]:
    """Yield the texts in a value of a module."""
    if isinstance(value, str):
        yield str(value)
    elif isinstance(value, Mapping):
        yield from (text for pair in value.items() for one in pair for text in texts_in(one))
    elif isinstance(value, (tuple, list, set, frozenset)):
        yield from (text for one in value for text in texts_in(one))


def undescribed(texts: Iterable[str]) -> set[str]:
    return {one for one in texts if is_key(one)} - DESCRIBED - NOT_OURS_TO_DESCRIBE.keys()


MODULES = [
    one.name
    for package in (koord, koord_sandbox)
    for one in walk_packages(package.__path__, f"{package.__name__}.")
    if not one.name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_every_key_of_a_module_has_an_entry(name):
    module = import_module(name)
    source = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    written = [node.value for node in ast.walk(source) if isinstance(node, ast.Constant)]
    made = [value for at, value in vars(module).items() if not at.startswith("__")]
    assert undescribed(texts_in([*made, *written])) == set()


def test_every_constant_of_the_keys_is_described():
    bare = {"PREFIX", "KUEUE"}
    for found in iter_modules(keys.__path__):
        module = import_module(f"{keys.__name__}.{found.name}")
        values = {at: value for at, value in vars(module).items() if at.isupper()}
        assert [at for at in values if at not in bare and values[at] not in DESCRIBED] == []


def test_every_entry_says_what_it_is_on():
    assert [one.key for one in list_entries() if one.where == "value"] == []


@pytest.mark.parametrize(
    "text", ["quota.scheduling.koordinator.sh/new", "huawei.com/new", "x.hami.io/a-limit-"]
)
def test_new_key_without_an_entry_is_found(text):
    assert undescribed(texts_in({"a": [text]})) == {text}
