"""Hooks: what others add to quotas. ``docs/quota.md`` shows how one is written and installed.

A hook is somebody else's code in our loop, so nothing that it does wrong reaches further than its
own answer: what it raises is counted and kept, a check that fails objects to nothing. How hooks are
found is not known here.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, ParamSpec, Protocol, TypeAlias, TypeVar

from koord.core.quota.ledger import Check, Ledger
from koord.core.quota.model import QuotaCharge, QuotaName, QuotaSpec
from koord.core.quota.status import Summary
from koord.core.quota.usage import PodUse
from koord.core.units import Amounts

P = ParamSpec("P")
T = TypeVar("T")

HookName: TypeAlias = str
MAX_TEXT: Final = 1024
"""What a hook says is cut to that; it ends up in conditions."""


@dataclass(frozen=True, slots=True)
class HookCondition:
    """A condition that a hook adds to the status of a quota; ``type`` has a domain of its own."""

    type: str
    status: bool
    reason: str
    message: str


class QuotaHook(Protocol):
    """What a hook may do; inherit from it and leave out the rest.

    All of it is called in the loop that plans, ``check_unit`` many times, and must return at once.
    """

    def check_unit(self, quota: QuotaSpec, used: Amounts, request: Amounts) -> str:  # noqa: ARG002 - for those who inherit
        """Return what is against starting a gang or a single pod; an empty text if nothing is.

        ``request`` is all that it asks of the quota, ``used`` what the quota uses with those that
        are started in the same moment. It is asked when quotas have let the unit pass.
        """
        return ""

    def on_quota_change(self, before: QuotaSpec | None, after: QuotaSpec | None) -> None:
        """Note that a quota came into force, changed, or went out of force."""

    def on_pod_change(self, before: PodUse | None, after: PodUse | None) -> None:
        """Note that a pod began to count for a quota, counts in another way, or no more."""

    def augment_status(self, summary: Summary) -> Iterable[HookCondition]:  # noqa: ARG002 - the same
        """Return what else there is to say about a quota in force."""
        return ()


@dataclass(slots=True)
class HookFailure:
    """How often a hook failed in one operation since the start, and how at last."""

    count: int = 0
    last: str = ""


class Hooks:
    """All hooks, by the names under which they are installed; none by default."""

    def __init__(self, hooks: Mapping[HookName, QuotaHook] | None = None) -> None:
        self.hooks = dict(sorted((hooks or {}).items()))
        self.failures: dict[tuple[HookName, str], HookFailure] = {}
        """(hook, operation) -> what went wrong there."""
        self.stopwatch: Callable[[HookName, str], AbstractContextManager[object]] = _untimed
        """Is entered while a hook is asked: here is no clock."""

    def __bool__(self) -> bool:
        return bool(self.hooks or self.failures)

    def fail(self, name: HookName, operation: str, error: BaseException) -> None:
        """Remember that a hook failed."""
        failure = self.failures.setdefault((name, operation), HookFailure())
        failure.count += 1
        failure.last = f"{type(error).__name__}: {error}"[:MAX_TEXT]

    def bind(self, ledger: Ledger) -> Ledger:
        """Have the checks of all hooks asked for what is charged to a ledger."""
        if self.hooks:
            ledger.checks = {name: self._make_check(name, ledger) for name in self.hooks}
        return ledger

    def tell_quotas(
        self, before: Mapping[QuotaName, QuotaSpec], after: Mapping[QuotaName, QuotaSpec]
    ) -> None:
        """Tell of all quotas that are not in force as they were."""
        for quota in sorted({**before, **after}):
            old, new = before.get(quota), after.get(quota)
            if old != new:
                for name, hook in self.hooks.items():
                    self._call(name, "on_quota_change", hook.on_quota_change, old, new)

    def tell_pod(self, before: PodUse | None, after: PodUse | None) -> None:
        """Tell how a pod counts now."""
        for name, hook in self.hooks.items():
            self._call(name, "on_pod_change", hook.on_pod_change, before, after)

    def augment(self, summary: Summary) -> tuple[HookCondition, ...]:
        """Return what all hooks say about a quota."""
        said: list[HookCondition] = []
        for name, hook in self.hooks.items():
            found = self._call(name, "augment_status", _augment, hook, summary)
            said += found or ()
        return tuple(said)

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
        except Exception as error:  # noqa: BLE001 - what somebody else's code does wrong is its own
            self.fail(name, operation, error)
            return None


def _untimed(*_: str) -> AbstractContextManager[object]:
    return nullcontext()


def _augment(hook: QuotaHook, summary: Summary) -> list[HookCondition]:
    said = list(hook.augment_status(summary))
    for one in said:
        if "/" not in one.type:
            raise ValueError(f"the condition {one.type} has no domain of its own")
    return said
