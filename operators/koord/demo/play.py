"""Plays the scenes: does what a user does, and believes only what the observer has seen."""

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from koord.demo.claims import Claim
from koord.demo.errors import CommandError, NotSeenError
from koord.demo.observer import Observer
from koord.demo.operators import KOORD, Operators
from koord.demo.scenario import Command, Scene
from koord.demo.screen import Screen
from koord.sandbox import ControlPlane

_PATIENCE: Final = 30.0  # seconds until a claim counts as not seen
_COMMAND_TIMEOUT: Final = 60.0
_TO_READ: Final = 1.0  # seconds
_TO_READ_MORE: Final = 3.0


@dataclass(frozen=True, slots=True)
class Player:
    """Plays on a stage where everything runs."""

    plane: ControlPlane
    operators: Operators
    observer: Observer
    screen: Screen

    def play(self, scene: Scene) -> None:
        """Play one scene; raise `NotSeenError` with the claims that did not come true."""
        self.screen.tell(scene.story)
        self._enter(scene.command)
        for claim in scene.claims:
            with self.screen.waiting(claim.text):
                self._await(claim, scene.claims)
            self.screen.confirm(claim.text)
        self._check(scene.in_hindsight)
        for claim in scene.in_hindsight:
            self.screen.confirm(claim.text)
        self._quote(scene.gang)
        if scene.explain is not None:
            self._enter(scene.explain)
        self.screen.rest(_TO_READ if scene.explain is None else _TO_READ_MORE)

    def _await(self, claim: Claim, together: Iterable[Claim]) -> None:
        if not self.observer.wait(claim.is_true, _PATIENCE, self.operators.check):
            self._check(together)

    def _check(self, claims: Iterable[Claim]) -> None:
        cluster = self.observer.look()
        missing = [claim.text for claim in claims if not claim.is_true(cluster)]
        if missing:
            raise NotSeenError(missing)

    def _quote(self, gang: str) -> None:
        seen = self.observer.look().gang(gang)
        obstacle = None if seen is None else seen.obstacle()
        if obstacle is not None:
            self.screen.answer(f"{obstacle.reason}: {obstacle.message}")

    def _enter(self, command: Command) -> None:
        self.screen.type(str(command))
        with self.screen.waiting(command.program):
            lines = self._run(command).splitlines()
        if command.grep:
            lines = _find_with_next(lines, command.grep)
            if not lines:
                raise CommandError(f"`{command}` found nothing")
        for line in lines:
            self.screen.answer(line)

    def _run(self, command: Command) -> str:
        if command.program == "kubectl":
            stdin = None if command.edit is None else command.edit.read()
            return self.plane.kubectl(*command.arguments, stdin=stdin)
        try:
            done = subprocess.run(
                [*KOORD, *command.arguments],
                env=os.environ | {"KUBECONFIG": str(self.plane.kubeconfig)},
                capture_output=True,
                text=True,
                timeout=_COMMAND_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise CommandError(str(error)) from error
        if done.returncode != 0:
            raise CommandError(f"{command} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout


def _find_with_next(lines: list[str], text: str) -> list[str]:
    found = (lines[i : i + 2] for i, line in enumerate(lines) if text in line)
    return next(found, [])
