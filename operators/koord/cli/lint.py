"""``koord lint``: checks YAML files before they are applied, alone or against a cluster.

The rules are in ``koord.api``. The cluster is read with ``--server`` only, and never changed.
"""

import asyncio
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from koord.answers.envelope import AnswerHead
from koord.api.job_disruptions import find_disruption_problems
from koord.api.keys import operators
from koord.api.lint import lint_documents, make_title
from koord.api.lint_capacity import find_capacity_problems
from koord.api.lint_files import INJECT_ACCELERATORS, INJECT_ALL, ClusterFacts, Quota
from koord.api.lint_isolation import Finding, find_of
from koord.api.lint_relations import find_parent_problems, find_relation_problems
from koord.api.manifest_text import (
    MAX_FILE_BYTES,
    UnreadableError,
    read_documents,
    read_json,
    unfold,
)
from koord.api.parse import Problem
from koord.api.spark_drivers import find_driver_problems
from koord.cli.common import Context, ExitCode, Form, Kubeconfig, Output, fail, say
from koord.cli.output import count_of, print_in
from koord.plain_text import escape_line

if TYPE_CHECKING:
    from koord.cli.lint_pods import LintedProfiles

_STDIN: Final = "-"
_FOR_ACCELERATORS: Final = frozenset({INJECT_ALL, INJECT_ACCELERATORS})
_OBJECT: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9.-]*/(?:[a-z0-9-]+/)?[a-z0-9.-]+")
_SUFFIXES: Final = (".yaml", ".yml", ".json")
"""Of the files of a folder that are read."""


class WrittenTemplate(NamedTuple):
    """What profiles write into the pods of one template."""

    file: str
    object: str
    profiles: list[str]
    fields: list[str]
    assumed: list[str]
    """Labels of the namespace that are not known, and assumed to be right."""

    def lines(self) -> Iterator[str]:
        title = escape_line(f"{self.file}: {self.object}")
        if not self.profiles:
            yield f"{title}: no profile applies"
            return
        where = (
            f", if the namespace has the right {', '.join(self.assumed)}" if self.assumed else ""
        )
        yield f"{title}: written by {', '.join(self.profiles)}{where}:"
        yield from (f"  {field}" for field in self.fields)


class LintProblem(NamedTuple):
    """One problem: in which file, of which object."""

    file: str
    object: str
    problem: str

    def __str__(self) -> str:
        return escape_line(f"{self.file}: {self.object}: {self.problem}")


class LintSource(NamedTuple):
    """One object: in which file it is, and how it is called."""

    file: str
    document: object
    title: str

    def tell(self, problem: Problem) -> LintProblem:
        return LintProblem(self.file, self.title, str(problem))


def lint(  # noqa: PLR0917 - each is an option
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|FOLDER|KIND/NAME|-...",
            help="YAML or JSON files, or folders with such files; - is the standard input. "
            "KIND/NAME, such as jobset/train, is read from the cluster.",
        ),
    ],
    server: Annotated[
        bool,
        typer.Option(
            "--server", help="Also compare with nodes, PodGroups and quotas of the cluster."
        ),
    ] = False,
    profile: Annotated[
        list[str] | None,
        typer.Option(
            "--profile",
            metavar="FILE",
            help="Files with ClusterColocationProfiles: also show what they write into pods.",
        ),
    ] = None,
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Find mistakes in YAML files before they cost a job its start.

    Checks our kinds in full; of all others labels, annotations, gates, whether PodGroup and quota
    exist, enough pods join, what they ask for can fit, and pods with accelerators opt in. Notes are
    advice, such as what lets a Job survive its first preemption; they are no problems. Exit codes
    for CI: 0 no problem, 1 problems, 2 not readable.

    For example:

      koord lint job.yaml

      koord lint manifests/

      koord lint job.yaml --profile profiles.yaml

      koord lint jobset/train --server

      kustomize build . | koord lint - --server
    """
    named = [file for file in files if _is_object(file)]
    read, is_complete = _read_all(file for file in files if file not in named)
    read += _read_objects(named, kubeconfig, context)
    profiles, profiles_complete = _read_all(profile or ())
    is_complete = is_complete and profiles_complete
    sources = _list_sources([*read, *profiles])
    linted = _read_profiles(sources)
    injected = list(_find_injected(sources, linted)) if profile else []
    cluster_facts = _ask(kubeconfig, context) if server else None
    problems = [
        *_check(sources, cluster_facts),
        *_find_qos(sources, linted),
        *_find_config(sources),
    ]
    lacking = [] if cluster_facts else list(_find_notes(sources))
    advice = [*_find_advice(sources), *_find_unpublished(sources, linted)]
    if linted.untried:
        advice.append(_tell_untried(linted))
    print_in(
        output,
        AnswerHead("Lint", time.time()),
        document=lambda: {
            "objects": len(sources),
            "problems": [problem._asdict() for problem in problems],
            "notes": [note._asdict() for note in (*lacking, *advice)],
            **({"written": [each._asdict() for each in injected]} if profile else {}),
        },
        names=lambda: dict.fromkeys(problem.file for problem in problems),
        text=lambda: (
            *map(str, problems),
            *(f"note: {note} (--server looks in the cluster)" for note in lacking),
            *(f"note: {note}" for note in advice),
            *(line for each in injected for line in each.lines()),
            f"{count_of(len(sources), 'object')} checked, {count_of(len(problems), 'problem')}",
        ),
    )
    if not is_complete:
        raise typer.Exit(ExitCode.USAGE)
    if problems:
        raise typer.Exit(ExitCode.NOT_WELL)


def _list_sources(read: Iterable[tuple[str, object]]) -> list[LintSource]:
    """Return the objects that were read, those of lists one by one."""
    objects = ((file, each) for file, document in read for each in unfold(document))
    return [
        LintSource(file, document, make_title(document, number))
        for number, (file, document) in enumerate(objects, start=1)
    ]


def _check(sources: list[LintSource], cluster_facts: ClusterFacts | None) -> Iterator[LintProblem]:
    bare = [source.document for source in sources]
    related: dict[int, list[Problem]] = {}
    for at, problem in (
        *find_relation_problems(bare, cluster_facts),
        *find_capacity_problems(bare, cluster_facts),
        *(find_parent_problems(bare, cluster_facts) if cluster_facts else ()),
    ):
        related.setdefault(at, []).append(problem)
    for at, checked in enumerate(lint_documents(bare)):
        for problem in dict.fromkeys((*checked.problems, *related.get(at, ()))):
            yield sources[at].tell(problem)


def _find_notes(sources: list[LintSource]) -> Iterator[LintProblem]:
    """Yield what may be a mistake, or be right by what the cluster has."""
    bare = [source.document for source in sources]
    for at, problem in find_parent_problems(bare):
        yield sources[at].tell(problem)


def _find_each(
    sources: list[LintSource], find: Callable[[dict[str, Any]], Iterable[Problem]]
) -> Iterator[LintProblem]:
    """Yield what a rule says of each object; what it fails for concerns that one alone."""

    def find_at(at: int, document: dict[str, Any]) -> Iterator[Finding]:
        yield from ((at, problem) for problem in find(document))

    for at, source in enumerate(sources):
        if isinstance(source.document, dict):
            for _, problem in find_of(at, find_at, at, source.document):
                yield source.tell(problem)


def _find_advice(sources: list[LintSource]) -> Iterator[LintProblem]:
    yield from _find_each(sources, find_disruption_problems)
    yield from _find_each(sources, find_driver_problems)


def _read_profiles(sources: list[LintSource]) -> "LintedProfiles":
    from koord.cli.lint_pods import read_profiles  # noqa: PLC0415 - slow

    return read_profiles(source.document for source in sources)


def _tell_untried(linted: "LintedProfiles") -> LintProblem:
    left = count_of(linted.untried, "template")
    text = f"{left} judged as written: too many to try all profiles on; check fewer at a time"
    return LintProblem("profiles", f"all {len(linted.profiles)}", text)


def _is_of(source: LintSource, kind: str) -> bool:
    return isinstance(source.document, dict) and source.document.get("kind") == kind


def _find_config(sources: list[LintSource]) -> Iterator[LintProblem]:
    """Yield what is wrong with Koordinator's ConfigMap."""
    maps = [source for source in sources if _is_of(source, "ConfigMap")]
    if not maps:
        return
    from koord.cli.lint_slo_config import find_config_problems  # noqa: PLC0415 - slow

    yield from _find_each(maps, find_config_problems)


def _find_qos(sources: list[LintSource], linted: "LintedProfiles") -> Iterator[LintProblem]:
    """Yield pods whose QoS, priority and resources do not go together."""
    from koord.cli.lint_pods import find_qos_findings  # noqa: PLC0415 - slow

    yield from _find_each(sources, lambda document: find_qos_findings(document, linted))


def _find_unpublished(sources: list[LintSource], linted: "LintedProfiles") -> Iterator[LintProblem]:
    """Yield profiles that no policy would be made of."""
    profiles = [source for source in sources if _is_of(source, "ClusterColocationProfile")]
    if not profiles:
        return
    reasons = dict(linted.find_unpublished())
    for source, checked in zip(
        profiles, lint_documents(source.document for source in profiles), strict=True
    ):
        reason = reasons.get(checked.title.partition(" ")[2])
        if reason is not None and not checked.problems:
            yield LintProblem(source.file, source.title, reason)


def _find_injected(
    sources: list[LintSource], linted: "LintedProfiles"
) -> Iterator[WrittenTemplate]:
    from koord.cli.lint_pods import find_injected  # noqa: PLC0415 - slow

    for injected in find_injected([source.document for source in sources], linted):
        source = sources[injected.at]
        yield WrittenTemplate(
            source.file,
            source.title,
            list(injected.profiles),
            [str(written) for written in injected.fields],
            list(injected.assumed),
        )


def _read_all(names: Iterable[str]) -> tuple[list[tuple[str, object]], bool]:
    """Return every object with its file, and whether all files could be read."""
    documents: list[tuple[str, object]] = []
    is_complete = True
    for name in (file for given in names for file in _list_files(given)):
        try:
            documents += ((name, document) for document in _parse(name, _read(name)))
        except (OSError, UnicodeDecodeError, UnreadableError) as error:
            is_complete = False
            say(escape_line(f"{name}: {_describe(error)}"), err=True)
    return documents, is_complete


def _is_object(name: str) -> bool:
    """Whether a name is KIND/NAME or KIND/NAMESPACE/NAME, and no file or folder."""
    return (
        bool(_OBJECT.fullmatch(name)) and not name.endswith(_SUFFIXES) and not Path(name).exists()
    )


def _read_objects(names: list[str], kubeconfig: str, context: str) -> list[tuple[str, object]]:
    """Return objects of the cluster; ends the command if one is not there."""
    if not names:
        return []
    from koord.answers.reading import Target, TargetNotFoundError  # noqa: PLC0415 - slow
    from koord.cli.connection import open_client  # noqa: PLC0415 - slow
    from koord.cli.owned_pods import read_object  # noqa: PLC0415 - slow
    from koord.kube.errors import KubeError  # noqa: PLC0415 - slow

    async def read() -> list[tuple[str, object]]:
        documents: list[tuple[str, object]] = []
        async with open_client(kubeconfig, context) as (client, access):
            for written in names:
                kind, *given, name = written.split("/")
                target = Target(kind, given[0] if given else access.namespace, name)
                documents.append((written, await read_object(client, target)))
        return documents

    try:
        return asyncio.run(read())
    except KubeError as error:
        fail(str(error), ExitCode.UNREADABLE)
    except TargetNotFoundError as error:
        fail(str(error), ExitCode.USAGE)


def _list_files(name: str) -> list[str]:
    """Return the files of a folder, without those in hidden folders; another name as it is."""
    folder = Path(name)
    if name == _STDIN or not folder.is_dir():
        return [name]
    paths = [
        str(path)
        for path in sorted(folder.rglob("*"))
        if path.suffix in _SUFFIXES
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    if not paths:
        fail(f"{name}: the folder has no files *.yaml, *.yml or *.json", ExitCode.USAGE)
    return paths


def _read(name: str) -> str:
    if name == _STDIN:
        return sys.stdin.read(MAX_FILE_BYTES + 1)
    with Path(name).open("rb") as file:
        return file.read(MAX_FILE_BYTES + 1).decode("utf-8")


def _parse(name: str, text: str) -> list[object]:
    return [read_json(text)] if name.endswith(".json") else list(read_documents(text))


def _describe(error: Exception) -> str:
    match error:
        case FileNotFoundError():
            return "there is no such file or folder"
        case OSError():
            return f"cannot be read: {error.strerror}"
        case UnicodeDecodeError():
            return "is not text in UTF-8"
        case _:
            return str(error)


def _ask(kubeconfig: str, context: str) -> ClusterFacts:
    """Return what the cluster has; the reader is imported only for that."""
    from koord.cli.cluster import read_without_target, refuse_gaps  # noqa: PLC0415 - slow
    from koord.core.plugins.inter_pod import InterPod  # noqa: PLC0415 - slow
    from koord.core.quota.model import ROOT  # noqa: PLC0415 - slow
    from koord.domains.gang import POD_GROUPS  # noqa: PLC0415 - slow
    from koord.domains.placement import NODES  # noqa: PLC0415 - slow
    from koord.domains.quota import QUOTAS  # noqa: PLC0415 - slow

    reading, target = read_without_target(kubeconfig, context)
    refuse_gaps(reading, POD_GROUPS, QUOTAS)
    state = reading.state
    gangs, written = state.gangs, tuple(state.quotas.catalog.written.values())
    groups = (key.split("/", 1) for key in gangs.keys() if gangs.pod_group(key) is not None)  # noqa: SIM118
    nodes = (node.allocatable for node in state.table.nodes if node is not None)
    namespaces = state.plugin(InterPod).namespaces.items()
    injecting = {
        name: value for name, labels in namespaces if (value := labels.get(operators.INJECT))
    }
    return ClusterFacts(
        frozenset((group[0], group[1]) for group in groups),
        frozenset(spec.name for spec in written),
        target.namespace,
        tuple(
            Quota(
                *(spec.name, spec.namespace, spec.tree_id, spec.namespaces, spec.max),
                parent="" if spec.parent == ROOT else spec.parent,
                is_root=spec.is_tree_root,
            )
            for spec in written
        ),
        tuple(nodes) if reading.extent_of(NODES.name) is None else (),
        frozenset(injecting),
        frozenset(name for name, value in injecting.items() if value in _FOR_ACCELERATORS),
    )
