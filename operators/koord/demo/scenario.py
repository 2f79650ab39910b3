"""The play: what is typed, and what must be seen on the API server after it. Only data.

Two jobs on eight nodes of eight GPUs: *resnet* takes half of the cluster, *llama* all of it.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from koord.api.keys import gang as keys
from koord.api.keys import operators
from koord.core.framework.reasons import InsufficientNodes
from koord.core.gang.reasons import AllBound, MissingMembers
from koord.demo.claims import (
    Claim,
    came_at_once,
    group_says,
    has_finished,
    is_bound_whole,
    members_say,
    none_was_early,
    runs_whole,
    waits,
)
from koord.demo.wire import GPU

NODES: Final = 8
SHAPE: Final = "a100x8"
SMALL: Final = "resnet"
BIG: Final = "llama"
_SMALL_PODS: Final = 4
_BIG_PODS: Final = 8
_RUN_SECONDS: Final = f"{operators.PREFIX}demo-run-seconds"


@dataclass(frozen=True, slots=True)
class Edit:
    """A file, with one text in it replaced by another."""

    file: Path
    old: str
    new: str

    def read(self) -> str:
        """Return the file's text as it is after the edit."""
        return self.file.read_text(encoding="utf-8").replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Command:
    """What is typed: a program, its arguments, perhaps a file that is edited on the way to it.

    ``grep`` is a line of what it prints: only that one and the next are shown.
    """

    program: str
    arguments: tuple[str, ...]
    edit: Edit | None = None
    grep: str = ""

    def __str__(self) -> str:
        """Write it as a shell takes it."""
        pipeline = [(self.program, *self.arguments)]
        if self.edit is not None:
            script = f"s/{self.edit.old}/{self.edit.new}/"
            pipeline.insert(0, ("sed", script, str(self.edit.file)))
        if self.grep:
            pipeline.append(("grep", "-A1", self.grep))
        return " | ".join(shlex.join(words) for words in pipeline)


@dataclass(frozen=True, slots=True)
class Scene:
    """One step: a command, and the claims that become true after it.

    ``in_hindsight`` are claims about what happened meanwhile: true at the end of the scene, or not
    at all. ``gang`` is whom the scene is about; ``explain`` is asked at its end.
    """

    story: str
    gang: str
    command: Command
    claims: tuple[Claim, ...]
    in_hindsight: tuple[Claim, ...] = ()
    explain: Command | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A gang of the play, and the one that it has to wait for."""

    gang: str
    after: str | None = None


PARTS: Final = (Part(SMALL), Part(BIG, after=SMALL))


def make_scenes(examples: Path) -> tuple[Scene, ...]:
    """Return the play, with the manifests of this folder."""
    small, big = examples / f"{SMALL}.yaml", examples / f"{BIG}.yaml"
    return (
        _short_of_one(small),
        _the_last_one_comes(),
        _too_big_for_now(big),
        _room_at_last(),
    )


def _short_of_one(manifest: Path) -> Scene:
    present = _SMALL_PODS - 1
    edit = Edit(manifest, f"parallelism: {_SMALL_PODS}", f"parallelism: {present}")
    return Scene(
        story=f"A job of {_SMALL_PODS} pods with 8 GPUs each comes short of one pod. It waits.",
        gang=SMALL,
        command=_kubectl("apply", "-f", "-", edit=edit),
        claims=(
            waits(SMALL, present),
            group_says(SMALL, "QuorumReached", MissingMembers.code, f"{present} of {_SMALL_PODS}"),
            members_say(SMALL, present, MissingMembers.code),
        ),
    )


def _the_last_one_comes() -> Scene:
    # Not `apply`, which first has the API server make a schema of everything, for a second or two.
    patch = f'{{"spec":{{"parallelism":{_SMALL_PODS}}}}}'
    return Scene(
        story="The fourth pod arrives. All four get their nodes at once.",
        gang=SMALL,
        command=_kubectl("patch", "job", SMALL, "-p", patch),
        claims=(
            is_bound_whole(SMALL, _SMALL_PODS),
            group_says(SMALL, "Bound", AllBound.code, status=True),
            runs_whole(SMALL, _SMALL_PODS),
        ),
        in_hindsight=(none_was_early(SMALL, _SMALL_PODS), came_at_once(SMALL)),
    )


def _too_big_for_now(manifest: Path) -> Scene:
    missing = _BIG_PODS + _SMALL_PODS - NODES
    return Scene(
        story=(
            f"A job of {_BIG_PODS} such pods comes. Half of it would fit, and would block all GPUs "
            "that are left, for nothing. So none of it starts."
        ),
        gang=BIG,
        command=_kubectl("apply", "-f", str(manifest)),
        claims=(
            waits(BIG, _BIG_PODS),
            group_says(BIG, "Placed", InsufficientNodes.code, GPU, f"{missing} more nodes"),
            members_say(BIG, _BIG_PODS, InsufficientNodes.code),
        ),
        explain=Command("koord", ("explain", f"podgroup/{BIG}"), grep="What would help"),
    )


def _room_at_last() -> Scene:
    members = f"{keys.POD_GROUP}={SMALL}"
    return Scene(
        story=(
            "The first job ends (nothing really runs on fake nodes: an annotation tells them that "
            "the work is done). The big one gets the whole cluster."
        ),
        gang=BIG,
        command=_kubectl("annotate", "pods", "-l", members, f"{_RUN_SECONDS}=0"),
        claims=(
            has_finished(SMALL, _SMALL_PODS),
            is_bound_whole(BIG, _BIG_PODS),
            group_says(BIG, "Bound", AllBound.code, status=True),
            runs_whole(BIG, _BIG_PODS),
        ),
        in_hindsight=(
            none_was_early(BIG, _BIG_PODS, after=SMALL),
            came_at_once(BIG, after=SMALL),
        ),
    )


def _kubectl(*arguments: str, edit: Edit | None = None) -> Command:
    return Command("kubectl", arguments, edit)
