"""The commands and links of the documentation."""

import copy
import re
from pathlib import Path

import pytest
import yaml
from tests.docs.markdown import Block, Run, anchors_of, links_of, parse_page

from koord.api.job_disruptions import find_disruption_problems
from koord.api.keys import operators
from koord.api.workloads import find_templates
from koord.runtime.settings import Settings, parse_settings

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md"))]
BLOCKS = [block for page in PAGES for block in parse_page(ROOT / page, page)]
GLOSSARY = "docs/glossary.md"
RUN_BY_THE_TESTS = {"console", "python", "yaml"}
MAX_LINES = 300
MAX_TABLE_LINES = 1000
"""Of the pages that are made from the code, where a name is looked up."""
READ_ONLY = {"text", "json", "mermaid", "diff"}

each_page = pytest.mark.parametrize("page", PAGES)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_block_has_a_known_language(block):
    assert block.language in RUN_BY_THE_TESTS | READ_ONLY


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "console"], ids=str)
def test_console_block_has_commands(block):
    assert block.commands, "commands begin with '$ '"


def find_jobs():
    texts = {str(block): block.text for block in BLOCKS if block.language == "yaml"}
    files = [*ROOT.glob("examples/**/*.yaml"), *ROOT.glob("manifests/**/*.yaml")]
    texts |= {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files}
    for name, text in texts.items():
        for document in yaml.safe_load_all(text):
            if isinstance(document, dict) and "kind" in document:
                yield pytest.param(document, id=f"{name} {document['kind']}")


@pytest.mark.parametrize("document", list(find_jobs()))
def test_jobs_survive_their_first_preemption(document):
    """Also where the namespace opts them in, and not their own templates."""
    document = copy.deepcopy(document)
    for template in find_templates(document):
        spec = template.setdefault("spec", {})
        if spec.get("schedulerName", operators.SCHEDULER_NAME) == operators.SCHEDULER_NAME:
            spec["schedulingGates"] = [{"name": operators.PLACEMENT_GATE}]
    assert list(find_disruption_problems(document)) == []


@each_page
def test_link_targets_exist(page):
    path = ROOT / page
    for target in links_of(path.read_text(encoding="utf-8")):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        linked = (path.parent / file).resolve() if file else path
        assert linked.exists(), target
        assert not anchor or anchor in anchors_of(linked.read_text(encoding="utf-8")), target


@each_page
def test_page_is_short(page):
    most = MAX_TABLE_LINES if page.startswith("docs/reference/") else MAX_LINES
    assert len((ROOT / page).read_text(encoding="utf-8").splitlines()) <= most


def pages_linked_by(page: str) -> list[str]:
    path = ROOT / page
    files = (target.partition("#")[0] for target in links_of(path.read_text(encoding="utf-8")))
    return [
        str((path.parent / file).resolve().relative_to(ROOT))
        for file in files
        if file.endswith(".md") and "://" not in file
    ]


def test_every_page_is_linked_from_the_readme():
    reached, pending = set(), ["README.md"]
    while pending:
        page = pending.pop()
        if page not in reached:
            reached.add(page)
            pending += pages_linked_by(page)
    assert set(PAGES) <= reached


@pytest.mark.parametrize("page", [page for page in PAGES if page != GLOSSARY])
def test_page_links_the_glossary(page):
    assert GLOSSARY in pages_linked_by(page)


def test_terms_of_the_glossary_are_sorted():
    text = (ROOT / GLOSSARY).read_text("utf-8")
    terms = [term.lower() for term in re.findall(r"^\* \*\*(.+?)\*\*", text, re.MULTILINE)]
    assert terms
    assert terms == sorted(terms)


def test_modules_named_in_the_architecture_exist():
    pages = ("architecture", "architecture-rules", "decisions")
    text = "".join((ROOT / f"docs/{one}.md").read_text("utf-8") for one in pages)
    named = re.findall(r"`((?:agent|api|core|kube|controllers|runtime|cli)/[\w/.]+)`", text)
    assert named
    assert [one for one in named if not (ROOT / "operators/koord" / one).exists()] == []
    contrib = re.findall(r"`(contrib/[\w/.]+)`", text)
    assert contrib
    assert [one for one in contrib if not (ROOT / one).exists()] == []


def figures(row: str, column: int) -> list[float]:
    """Return a column of the figures of performance whose scenarios end with ``row``."""
    text = (ROOT / "docs/performance.md").read_text("utf-8")
    cells = [[one.strip() for one in line.split("|")[1:-1]] for line in text.splitlines()]
    chosen = [one[column] for one in cells if one[0:1] and one[0].endswith(f"{row}`")]
    return [float(one.split()[0]) for one in chosen]


@pytest.mark.parametrize(
    ("title", "column", "rounding"), [("share of what a client", 3, 1), ("CPU per pod", 8, 0.06)]
)
def test_figures_of_the_readme_are_those_of_performance(title, column, rounding):
    text = (ROOT / "README.md").read_text("utf-8")
    (line,) = (one for one in text.splitlines() if one.startswith(f"| {title}"))
    told = [list(map(float, re.findall(r"[\d.]+", cell))) for cell in line.split("|")[2:4]]
    ours = figures("singles-ungated-burst", column) + figures("one-gang-ungated-burst", column)
    theirs = figures("kube-scheduler-burst", column)
    for values, measured in zip(told, (ours, theirs), strict=True):
        assert values == pytest.approx([min(measured), max(measured)], abs=rounding)


def test_documented_configuration_is_valid():
    blocks = [block for block in BLOCKS if "kind: OperatorConfiguration" in block.text]
    assert blocks
    for block in blocks:
        assert parse_settings(block.text, str(block)) != Settings()


@pytest.mark.sandbox
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "page", sorted({block.page for block in BLOCKS if block.run is Run.ALWAYS})
)
def test_commands_of_a_page_succeed(page, reader, operators, subtests):
    for block in BLOCKS:
        if block.page == page and block.run is Run.ALWAYS:
            with subtests.test(msg=str(block)):
                check_step(block, reader)


@pytest.mark.sandbox
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("block", [b for b in BLOCKS if b.run is Run.ON_DEMAND], ids=str)
def test_commands_that_run_on_demand(block, request):
    if "slow" not in request.config.option.markexpr:
        pytest.skip("on demand: pytest -m slow tests/docs")
    check_step(block, request.getfixturevalue("reader"))


def check_step(block: Block, reader) -> None:
    match block.language:
        case "console":
            reader.run(block.commands)
        case "python" | "yaml" if block.title:
            reader.write_file(block.title, block.text)
        case "python":
            reader.run(["python -"], block.text)
        case "yaml" if "kind: OperatorConfiguration" not in block.text:
            reader.run(["kubectl apply --server-side --dry-run=server -f -"], block.text)
