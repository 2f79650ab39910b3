"""The reference is complete and current: a name without an entry fails here."""

from __future__ import annotations

import json

from tests.manifests.series import list_series
from tests.manifests.test_monitoring import ALERTS, FAMILIES
from tools.reference import make_pages
from typer.testing import CliRunner

from koord.answers import explain  # noqa: F401 - registers every reason
from koord.cli.main import COMMANDS, app
from koord.cli.reference import list_commands
from koord.core.gang.status import ConditionType
from koord.core.model.gang_history import Happened
from koord.core.model.reasons import REASONS
from koord.core.quota.spec_errors import QuotaProblem
from koord.core.quota.status import QuotaCondition
from koord.reference.entries import EntryKind, list_entries

ENTRIES = list_entries()


def names(kind: EntryKind) -> set[str]:
    return {one.key for one in ENTRIES if one.kind is kind}


def ask(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["reference", *words])
    return result.exit_code, result.output


def test_pages_are_current() -> None:
    stale = [one.name for one, text in make_pages().items() if one.read_text("utf-8") != text]
    assert not stale, "run make reference"


def test_every_reason_and_condition_has_an_entry() -> None:
    codes = {code for code, cls in REASONS.items() if cls.__module__.startswith("koord.")}
    types = {str(one) for kind in (ConditionType, QuotaCondition, Happened) for one in kind}
    faults = {str(one) for one in QuotaProblem}
    assert (codes | types | faults) - names(EntryKind.CONDITION) == set()


def test_exactly_the_series_and_alerts_that_exist_have_entries() -> None:
    ours = {name for name in names(EntryKind.SERIES) if name.startswith("koord_")}
    assert {name.removesuffix("_total") for name in ours} == {
        name.removesuffix("_total") for name in FAMILIES
    }
    labels = {name: one.labels for name, one in list_series().items()}
    for one in ENTRIES:
        if one.kind is EntryKind.SERIES and one.key in labels:
            told = set(filter(None, one.facts.get("labels", "").split(", ")))
            assert told == labels[one.key] - {"le"}, one.key
    assert names(EntryKind.ALERT) == {rule["alert"] for rule in ALERTS}


def test_every_entry_says_what_it_means() -> None:
    assert [one.key for one in [*ENTRIES, *list_commands()] if not one.means] == []


def test_an_entry_is_found_by_its_name_its_last_part_or_a_part() -> None:
    assert "ask the administrators to raise max" in ask("InsufficientMax")[1]
    assert "gang.scheduling.koordinator.sh/min-available" in ask("min-available")[1]
    assert "default: 120s" in ask("delayEvict")[1]
    assert "--dry-run" in ask("koord preempt")[1]


def test_an_unknown_name_is_refused_with_near_ones() -> None:
    code, text = ask("InsufficientMaks")
    assert code == 2
    assert "InsufficientMax" in text


def test_every_command_is_listed() -> None:
    found = json.loads(ask("koord", "-o", "json")[1])
    assert {f"koord {name}" for name in COMMANDS} <= {one["key"] for one in found}
