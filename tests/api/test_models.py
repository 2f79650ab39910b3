"""The models reject what the CRDs reject, with the field and the reason."""

from pathlib import Path

import pytest
from tests.api.cases import ACCEPTED, REFUSALS, RefusedSpec, make_object

from koord.api.crdgen import RESOURCE_BY_KIND
from koord.api.lint import lint_documents
from koord.api.manifest_text import read_documents
from koord.api.parse import InvalidObject, parse

SAMPLES = Path(__file__).parent / "samples"


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.id)
def test_models_name_the_field_and_the_reason(case: RefusedSpec) -> None:
    parsed = parse(RESOURCE_BY_KIND[case.kind], make_object(case.kind, **case.spec))

    assert isinstance(parsed, InvalidObject)
    assert [problem.field for problem in parsed.problems] == [case.field]
    assert case.message in parsed.problems[0].message


@pytest.mark.parametrize(("kind", "spec"), ACCEPTED)
def test_models_accept_valid_objects(kind: str, spec: dict[str, object]) -> None:
    parsed = parse(RESOURCE_BY_KIND[kind], make_object(kind, **spec), unknown_fields="forbid")

    assert not isinstance(parsed, InvalidObject), parsed


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_valid_samples_have_no_problems(path: Path) -> None:
    checked = list(lint_documents(read_documents(path.read_text())))

    assert checked
    assert [
        str(problem) for checked_document in checked for problem in checked_document.problems
    ] == []


@pytest.mark.parametrize(
    "path", sorted((SAMPLES / "invalid").glob("*.yaml")), ids=lambda path: path.stem
)
def test_invalid_samples_have_the_expected_problems(path: Path) -> None:
    text = path.read_text()
    expected = next(
        line.removeprefix("# lint: ") for line in text.splitlines() if line.startswith("# lint: ")
    )

    (checked,) = lint_documents(read_documents(text))

    assert expected in "\n".join(map(str, checked.problems))
