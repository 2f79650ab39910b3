"""Hooks: extensions of quotas. ``docs/quota.md`` shows how one is written and installed.

A hook is foreign code in the planning loop, so its errors are isolated: an exception is counted and
kept, and a check that fails refuses nothing. This module does not know how hooks are found.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import ParamSpec, Protocol, TypeAlias, TypeVar

from koord.core.model.text import MAX_TEXT
from koord.core.model.units import Amounts
from koord.core.quota.ledger import Check, Ledger
from koord.core.quota.model import QuotaCharge, QuotaName, QuotaSpec
from koord.core.quota.status import Summary
from koord.core.quota.usage import PodUse

P = ParamSpec("P")
T = TypeVar("T")

HookName: TypeAlias = str


@dataclass(frozen=True, slots=True)
class HookCondition:
    """A condition that a hook adds to a quota; ``type`` must be prefixed with the hook's domain."""

    type: str
    status: bool
    reason: str
    message: str


class QuotaHook(Protocol):
    """The interface of a hook; inherit from it and override what is needed.

    All methods are called in the planning loop, ``check_unit`` many times, and must return at once.
    """

    def check_unit(self, quota: QuotaSpec, used: Amounts, request: Amounts) -> str:  # noqa: ARG002 - for those who inherit
        """Return why a gang or a single pod must not start; an empty text if it may.

        ``request`` is its request to the quota, ``used`` the usage of the quota including units
        that start in the same cycle. Called for units that the quota itself admits.
        """
        return ""

    def on_quota_change(self, before: QuotaSpec | None, after: QuotaSpec | None) -> None:
        """Handle a quota that came into force, changed, or went out of force."""

    def on_pod_change(self, before: PodUse | None, after: PodUse | None) -> None:
        """Handle a pod that starts or stops counting for a quota, or counts differently."""

    def augment_status(self, summary: Summary) -> Iterable[HookCondition]:  # noqa: ARG002 - the same
        """Return further conditions of a quota in force."""
        return ()


@dataclass(slots=True)
class HookFailure:
    """How often a hook failed in one operation since the start, and its last error."""

    count: int = 0
    last: str = ""


class Hooks:
    """All hooks, by the names under which they are installed; none by default."""

    def __init__(self, hooks: Mapping[HookName, QuotaHook] | None = None) -> None:
        self.hooks = dict(sorted((hooks or {}).items()))
        self.failures: dict[tuple[HookName, str], HookFailure] = {}
        self.stopwatch: Callable[[HookName, str], AbstractContextManager[object]] = _untimed
        """Entered while a hook runs: this module has no clock."""

    def __bool__(self) -> bool:
        return bool(self.hooks or self.failures)

    def fail(self, name: HookName, operation: str, error: BaseException) -> None:
        failure = self.failures.setdefault((name, operation), HookFailure())
        failure.count += 1
        failure.last = f"{type(error).__name__}: {error}"[:MAX_TEXT]

    def describe_failures(self) -> str:
        """Return which hooks have failed since the start, each with its last error."""
        failed = "; ".join(
            f"hook {name} failed in {operation} ({failure.last})"
            for (name, operation), failure in sorted(self.failures.items())
        )
        return f"{failed}: a check that fails lets pods through" if failed else "no hook has failed"

    def bind(self, ledger: Ledger) -> Ledger:
        if self.hooks:
            ledger.checks = {name: self._make_check(name, ledger) for name in self.hooks}
        return ledger

    def notify_quotas(
        self, before: Mapping[QuotaName, QuotaSpec], after: Mapping[QuotaName, QuotaSpec]
    ) -> None:
        """Notify all hooks of quotas whose settings in force changed."""
        for quota in sorted({**before, **after}):
            old, new = before.get(quota), after.get(quota)
            if old != new:
                for name, hook in self.hooks.items():
                    self._call(name, "on_quota_change", hook.on_quota_change, old, new)

    def notify_pod(self, before: PodUse | None, after: PodUse | None) -> None:
        for name, hook in self.hooks.items():
            self._call(name, "on_pod_change", hook.on_pod_change, before, after)

    def augment(self, summary: Summary) -> tuple[HookCondition, ...]:
        conditions: list[HookCondition] = []
        for name, hook in self.hooks.items():
            added = self._call(name, "augment_status", _augment, hook, summary)
            conditions += added or ()
        return tuple(conditions)

    def _make_check(self, name: HookName, ledger: Ledger) -> Check:
        hook = self.hooks[name]

        def check(charge: QuotaCharge) -> str:
            account = ledger.account(charge.quota)
            answer = self._call(
                name,
                "check_unit",
                hook.check_unit,
                account.spec,
                dict(account.used),
                charge.request,
            )
            return str(answer or "")[:MAX_TEXT]

        return check

    def _call(
        self,
        name: HookName,
        operation: str,
        call: Callable[P, T],
        *given: P.args,
        **named: P.kwargs,
    ) -> T | None:
        try:
            with self.stopwatch(name, operation):
                return call(*given, **named)
        except Exception as error:  # noqa: BLE001 - errors of a hook stay its own
            self.fail(name, operation, error)
            return None


def _untimed(*_: str) -> AbstractContextManager[object]:
    return nullcontext()


def _augment(hook: QuotaHook, summary: Summary) -> list[HookCondition]:
    conditions = list(hook.augment_status(summary))
    for condition in conditions:
        if "/" not in condition.type:
            raise ValueError(f"the condition {condition.type} has no domain of its own")
    return conditions
