"""The status of each kind has one author; only where operators run apart placement has a say."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from koord.kube.client import Client
from koord.kube.config import Access, Credentials
from koord.kube.plan_keys import PlanKeys
from koord.operators.names import PLACEMENT
from koord.runtime.registry import OPERATORS, REGISTERED
from koord.runtime.settings import Settings
from koord.runtime.wiring import Parts

if TYPE_CHECKING:
    from collections.abc import Collection

RESOURCES = {
    operator.name: operator.resource.names.plural
    for operator in REGISTERED
    if operator.resource is not None
}


async def find_managers(operators: Collection[str]) -> Counter[tuple[str, str]]:
    """Return (resource, field manager) of all writers of a process."""
    async with Client(Credentials(lambda: Access("http://127.0.0.1:9"))) as client:
        parts = Parts(client, Settings(), operators, keys=PlanKeys())
        forms = ((plural, writer._form) for plural, writer in parts.writers)
        return Counter((plural, form.params.get("fieldManager", "")) for plural, form in forms)


async def test_each_status_has_one_author() -> None:
    authors = [(plural, f"koord-{name}") for name, plural in RESOURCES.items()]
    assert await find_managers(OPERATORS) == Counter([*authors, ("pods", "")])


@pytest.mark.parametrize("operator", RESOURCES)
async def test_an_operator_alone_writes_its_status_only(operator: str) -> None:
    assert await find_managers([operator]) == Counter([(RESOURCES[operator], f"koord-{operator}")])


async def test_placement_alone_reports_under_names_of_its_own() -> None:
    assert await find_managers([PLACEMENT]) == Counter(
        [
            ("pods", ""),
            ("podgroups", "koord-placement"),
            ("reservations", "koord-placement-wait"),
        ]
    )
