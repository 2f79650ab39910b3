"""Reads the Dockerfile, and executes its instructions in a folder instead of a container.

Knows the instructions that ours uses and refuses others. Absolute paths of the image become paths
below the folder, in commands and in variables; programs of the base image are those of the machine.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

_OPTION = re.compile(r"--(?P<name>\w+)=(?P<value>\S+) ")
_OURS = re.compile(r"(?<![\w./-])/(?:opt|src)\b")
"""Directories that the Dockerfile creates; all others come with the base image."""
_PASSED_ON = re.compile(r"(PIP|UV|SSL|REQUESTS|HTTPS?|NO|ALL)_\w+", re.IGNORECASE)
"""Access of this machine to the package index, which the Dockerfile does not configure."""


@dataclass(frozen=True)
class Instruction:
    keyword: str
    text: str

    @property
    def options(self) -> dict[str, str]:
        return {match["name"]: match["value"] for match in _OPTION.finditer(self.text)}

    @property
    def words(self) -> list[str]:
        """The arguments without options: a JSON list, or words in quotes or without."""
        text = _OPTION.sub("", self.text)
        return json.loads(text) if text.startswith("[") else shlex.split(text)

    @property
    def pairs(self) -> dict[str, str]:
        """The arguments of ENV, ARG and LABEL."""
        return dict(word.split("=", 1) for word in self.words if "=" in word)


@dataclass(frozen=True)
class Stage:
    base: str
    name: str
    instructions: list[Instruction] = field(default_factory=list)

    def all(self, keyword: str) -> list[Instruction]:
        return [one for one in self.instructions if one.keyword == keyword]

    def pairs(self, keyword: str) -> dict[str, str]:
        return {key: value for one in self.all(keyword) for key, value in one.pairs.items()}


def parse_dockerfile(text: str) -> list[Stage]:
    """Return the stages, with the defaults of the arguments that their bases are given by."""
    stages: list[Stage] = []
    arguments: dict[str, str] = {}
    for instruction in _parse_lines(text):
        if instruction.keyword == "FROM":
            base, *alias = instruction.words
            stages.append(Stage(Template(base).substitute(arguments), alias[1] if alias else ""))
        elif not stages:
            arguments |= instruction.pairs
        else:
            stages[-1].instructions.append(instruction)
    return stages


def _parse_lines(text: str) -> Iterator[Instruction]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for logical in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        if logical.strip():
            keyword, _, arguments = logical.partition(" ")
            yield Instruction(keyword, arguments.strip())


class Root:
    """A folder in place of the root of a container's file system."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._directory = folder
        self._variables: dict[str, str] = {}

    def place(self, path: str) -> Path:
        """Return a path of the image on this machine; relative ones start at the last WORKDIR."""
        return self.folder / path[1:] if path.startswith("/") else self._directory / path

    def carry_out(
        self, stage: Stage, context: Path, others: Mapping[str, "Root"], programs: Path
    ) -> None:
        """Execute a stage; ``programs`` holds the programs of its base image."""
        for one in stage.instructions:
            match one.keyword:
                case "WORKDIR":
                    self._directory = self.place(one.text)
                    self._directory.mkdir(parents=True, exist_ok=True)
                case "ENV":
                    self._variables |= one.pairs
                case "COPY":
                    source = one.options.get("from")
                    self._copy(one.words, others[source].place if source else context.__truediv__)
                case "RUN":
                    self.run(["/bin/sh", "-c", self._moved(one.text)], programs)
                case "ARG" | "LABEL" | "USER" | "ENTRYPOINT" | "CMD":
                    pass
                case _:
                    raise ValueError(f"{one.keyword} is not known here")

    def run(self, command: list[str], programs: Path) -> str:
        """Run a command as in a container, with only these environment variables."""
        done = subprocess.run(
            command,
            cwd=self._directory,
            env=self._environment(programs),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise AssertionError(f"{command} ended with {done.returncode}\n{done.stderr}")
        return done.stdout

    def find(self, program: str) -> str | None:
        """Find a program of the image itself, by the image's PATH."""
        path = self._variables.get("PATH", "")
        here = [str(self.place(one)) for one in path.split(os.pathsep)]
        return shutil.which(program, path=os.pathsep.join(here))

    def _environment(self, programs: Path) -> dict[str, str]:
        passed = {key: value for key, value in os.environ.items() if _PASSED_ON.fullmatch(key)}
        own = {key: self._moved(value) for key, value in self._variables.items()}
        path = os.pathsep.join([own.get("PATH", ""), str(programs), "/usr/bin", "/bin"])
        return passed | own | {"PATH": path.lstrip(os.pathsep)}

    def _moved(self, text: str) -> str:
        return _OURS.sub(lambda match: f"{self.folder}{match[0]}", text)

    def _copy(self, words: list[str], find_source) -> None:
        *sources, target = words
        for source in map(find_source, sources):
            if source.is_dir():
                shutil.copytree(source, self.place(target), symlinks=True, dirs_exist_ok=True)
            else:
                folder = self.place(target)
                folder.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, folder)
