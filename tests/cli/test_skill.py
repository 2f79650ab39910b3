"""The skill for agents: its commands exist, only read, and print JSON; its fields exist."""

import re
from pathlib import Path

import pytest
import yaml
from tests.cli.parse_command import parse_command

from koord.core.model.reason_class import ReasonClass

FILE = Path(__file__).parents[2] / "skills/koord-why/SKILL.md"
TEXT = FILE.read_text("utf-8")
COMMANDS = re.findall(r"^\$ (.+)$", TEXT, re.MULTILINE)
READ_ONLY = {"explain", "quota", "queue", "room", "fragments", "sick", "history", "what-if"}
WRITES = {"hold", "release"}


def test_the_front_matter_has_a_name_and_says_when_to_use_it() -> None:
    _, front, _ = TEXT.split("---\n", 2)
    found = yaml.safe_load(front)
    assert found.keys() == {"name", "description"}
    assert found["name"] == FILE.parent.name
    assert len(found["description"]) <= 1024


@pytest.mark.parametrize("line", COMMANDS)
def test_each_command_reads_and_prints_json(line: str) -> None:
    values = parse_command(line.replace("KIND", "podgroup").replace("FILE", str(FILE)))
    assert str(values["output"]) == "json"
    words = line.split()
    assert words[1] in READ_ONLY
    assert WRITES.isdisjoint(words)


def test_all_classes_of_reasons_are_explained() -> None:
    assert [one for one in ReasonClass if f"`{one}`" not in TEXT and f"is {one}" not in TEXT] == []


def test_fields_of_the_answer_are_those_of_its_reference() -> None:
    reference = (FILE.parents[2] / "docs/explain-json.md").read_text("utf-8")
    for field in ("dominant", "standing", "remedies", "nodes", "warnings", "notes", "since"):
        assert f"| `{field}` |" in reference
        assert f"`{field}" in TEXT
