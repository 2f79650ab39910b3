"""Tells at start what this process may not write, and which command mends that.

A policy that reserves writes of pods for the ServiceAccounts of the operators ends the process:
nothing would ever be placed. So does a person's identity that may not place pods. Any other missing
right does not, because roles may follow, and because everything else goes on; it is asked for again
until it is there.
"""

import asyncio
import logging
from collections.abc import Collection
from typing import Final, NoReturn

from koord.kube.client import Client
from koord.kube.write_check import EVICT, Write, find_denying_policy, find_missing_rights
from koord.runtime.registry import writes_of

log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 30.0
_PLACE: Final = frozenset({Write("", "pods", "patch"), Write("", "pods/binding", "create")})
_ROLES: Final = "kubectl apply -k manifests/base"
_EVICTION: Final = "kubectl apply -k manifests/overlays/eviction"
_SUSPEND: Final = "kubectl apply -k manifests/overlays/suspend"
RESUME: Final = (Write("batch", "jobs", "patch"), Write("batch", "jobs/status", "patch"))
_AUTOSCALER: Final = "kubectl apply -k manifests/overlays/autoscaler"
REQUEST_NODES: Final = (
    Write("autoscaling.x-k8s.io", "provisioningrequests", "create"),
    Write("autoscaling.x-k8s.io", "provisioningrequests", "delete"),
    Write("", "podtemplates", "create"),
)
_PROFILES: Final = "kubectl apply -k manifests/overlays/profiles"
PUBLISH_PROFILES: Final = tuple(
    Write("admissionregistration.k8s.io", plural, verb)
    for plural in ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings")
    for verb in ("create", "patch", "delete")
)
_NOTHING: Final = "nothing would be placed. Run with the identity of the operators:"
_ONLY_OPERATORS: Final = (
    "lets only the ServiceAccounts of the operators write what they write to pods, and you are "
    f"another user: {_NOTHING}"
)
_BECOME_OPERATORS: Final = """\
  kubectl config set-credentials koord-operators --token="$(kubectl create token koord-operators --namespace {namespace} --duration 8h)"
  kubectl config set-context koord-operators --user=koord-operators --cluster="$(kubectl config view --minify -o jsonpath='{{.clusters[0].name}}')"
  koord run --context koord-operators"""  # noqa: E501 - each is one line in a shell


class WritesDenied(Exception):  # noqa: N818 - what it says is what is wrong
    """A policy refuses what the operators write, to this identity."""


class WriteRights:
    """What this process may not write; ``missing`` is kept current by ``run``."""

    def __init__(
        self,
        client: Client,
        operators: Collection[str],
        namespace: str,
        *,
        in_pod: bool,
        more: Collection[Write] = (),
    ) -> None:
        self.missing: tuple[Write, ...] = ()
        self._client = client
        self._operators = operators
        self._namespace = namespace
        self._in_pod = in_pod
        self._more = more
        """What the settings in use need besides."""

    async def check(self) -> None:
        """Look once. Raises WritesDenied."""
        policy = await find_denying_policy(self._client, self._namespace)
        if policy:
            raise WritesDenied(f"the policy {policy} {_ONLY_OPERATORS}{self._commands()}")
        self.missing = await self._find_missing()
        if not self.missing:
            return
        if not self._in_pod and not _PLACE.isdisjoint(self.missing):
            raise WritesDenied(f"{self._name_missing()}: {_NOTHING}{self._commands()}")
        log.warning(
            "Writes will be refused: rights are missing",
            extra={"rights": ", ".join(map(str, self.missing)), "command": self._command},
        )

    async def run(self) -> NoReturn:
        """Look again for as long as rights are missing."""
        while True:
            await asyncio.sleep(AGAIN_SECONDS)
            if self.missing:
                self.missing = await self._find_missing()
                if not self.missing:
                    log.info("All rights are there now")

    def describe(self) -> tuple[str, ...]:
        """Return one text about all missing rights, for ``koord status``; none if there are all."""
        if not self.missing:
            return ()
        return (f"{self._name_missing()}: {self._command} has what grants it",)

    @property
    def _command(self) -> str:
        if set(self.missing) <= set(RESUME):
            return _SUSPEND
        if set(self.missing) <= set(REQUEST_NODES):
            return _AUTOSCALER
        if set(self.missing) <= set(PUBLISH_PROFILES):
            return _PROFILES
        return _EVICTION if self.missing == (EVICT,) else _ROLES

    async def _find_missing(self) -> tuple[Write, ...]:
        return await find_missing_rights(self._client, {*writes_of(self._operators), *self._more})

    def _name_missing(self) -> str:
        return f"no right to {', '.join(map(str, self.missing))}"

    def _commands(self) -> str:
        return f"\n\n{_BECOME_OPERATORS.format(namespace=self._namespace)}\n"
