"""Loops over the documents of files."""

from typing import Any

from tests.isolation.plays import NAMES, Patch, play

from koord.api import lint, lint_capacity, lint_files, lint_relations
from koord.api.parse import Problem

DOCUMENTS = [{"kind": "Pod", "metadata": {"name": name, "labels": {"a": 1}}} for name in NAMES]


def names_of(found: Any) -> list[str]:
    """Return which documents are checked as a whole, of those that were checked."""
    failed = {at for at, problem in found if problem.message.startswith("is not checked")}
    assert len(failed) == 1
    return [name for at, name in enumerate(NAMES) if at not in failed]


def check_each(patch: Patch, name: str) -> list[tuple[int, Problem]]:
    check = getattr(lint, name)

    def check_some(document: Any, *more: Any) -> Any:
        if document["metadata"]["name"] == "bad":
            raise ZeroDivisionError
        return check(document, *more)

    patch.setattr(lint, name, check_some)
    checked = enumerate(lint.lint_documents(DOCUMENTS))
    return [(at, problem) for at, each in checked for problem in each.problems]


@play("lint")
def documents(patch: Patch) -> list[str]:
    return names_of(check_each(patch, "_check"))


@play("lint")
def what_documents_say_together(patch: Patch) -> list[str]:
    collect = lint_files.collect

    def collect_some(files: Any, at: int, document: Any, default: str) -> None:
        if document["metadata"]["name"] == "bad":
            raise ZeroDivisionError
        collect(files, at, document, default)

    patch.setattr(lint_files, "collect", collect_some)
    return names_of(lint_relations.find_relation_problems(DOCUMENTS))


@play("lint")
def what_pods_ask_for(patch: Patch) -> list[str]:
    def ask(pods: Any) -> dict[str, int]:
        if pods.meta["name"] == "bad":
            raise ZeroDivisionError
        return {}

    patch.setattr(lint_capacity, "_ask", ask)
    found = dict(lint_capacity.find_capacity_problems(DOCUMENTS))
    return names_of(found.items())
