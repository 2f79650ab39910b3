"""Names say what they hold: no pronouns, and a class name means one thing in all packages."""

import ast
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.names.sources import read_modules, read_scripts

PRONOUNS = frozenset(
    ["one", "found", "asked", "known", "every", "said", "told", "some", "others", "rest"]
)


def list_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the identifiers of a module with their lines."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.keyword(arg=str(name)):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, name
            case ast.ClassDef(name=name):
                yield node.lineno, name


def find_pronouns(tree: ast.AST) -> list[tuple[int, str]]:
    return [(line, name) for line, name in list_names(tree) if name in PRONOUNS]


@pytest.mark.parametrize("source", ["one = 1", "f(known=1)", "def f(asked): ...", "pod.said"])
def test_pronouns_are_found(source: str) -> None:
    assert find_pronouns(ast.parse(source))


def test_no_pronoun_is_a_name() -> None:
    trees = read_modules() | read_scripts()
    pronouns = {module: find_pronouns(tree) for module, tree in trees.items()}
    assert {module: names for module, names in pronouns.items() if names} == {}


def test_no_two_classes_have_one_name() -> None:
    names = Counter(
        node.name
        for tree in read_modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []
