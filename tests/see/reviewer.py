"""A stand-in for the API server's reviews: whose a token is, and what its holder may list."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from koord.kube.errors import KubeError


@dataclass
class Reviewer:
    """Answers as a client would get it; ``rights`` are (user, plural, namespace), "" for all."""

    users: dict[str, str] = field(default_factory=dict)
    rights: set[tuple[str, str, str]] = field(default_factory=set)
    gets: set[tuple[str, str, str]] = field(default_factory=set)
    """The same of what may be got by name, and not listed."""
    paths: set[tuple[str, str]] = field(default_factory=set)
    problem: str = ""
    asked: Counter[str] = field(default_factory=Counter)

    async def post(self, path: str, body: dict[str, Any]) -> bytes:
        if self.problem:
            raise KubeError(self.problem)
        kind, spec = body["kind"], body["spec"]
        self.asked[kind] += 1
        if kind == "TokenReview":
            user = self.users.get(spec["token"])
            status = {"authenticated": user is not None, "user": {"username": user or ""}}
            return json.dumps({"status": status}).encode()
        return json.dumps({"status": {"allowed": self._allows(spec)}}).encode()

    def _allows(self, spec: dict[str, Any]) -> bool:
        user, path = spec["user"], spec.get("nonResourceAttributes")
        if path is not None:
            return (user, path["path"]) in self.paths
        asked = spec["resourceAttributes"]
        spaces = {asked.get("namespace", ""), ""}
        rights = self.rights | (self.gets if asked["verb"] == "get" else set())
        return any((user, asked["resource"], space) in rights for space in spaces)
