"""Simulated changes of quotas: what an edit, or one more gang, would do.

Nothing is decided here: shares come from the solver, and outcomes from the planner, on a copy of
the state with pods that do not exist.
"""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from koord.answers.edits import SetQuota, Submit, Trial
from koord.answers.encoding import encode, encode_amounts
from koord.answers.explain import first_refusal
from koord.answers.pending import find_pending
from koord.answers.quota_view import WaitingUnit, find_waits
from koord.answers.redaction import HiddenName, NameKind, redact
from koord.answers.what_if import compare_shares, view_shares
from koord.core.engine.planner import plan
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.gang.group import make_gang_key
from koord.core.gang.quorum import Ready, demands
from koord.core.model.gangs import GangKey, GangMembership, GangSource, GangSpec
from koord.core.model.pods import Handling, Pod, PodShape
from koord.core.model.reasons import Reason
from koord.core.model.units import PODS, Amounts, format_amount
from koord.core.quota.catalog import key_of
from koord.core.quota.entitlement import UNKNOWN, ReclaimSetting
from koord.core.quota.model import QuotaName, QuotaSpec
from koord.core.quota.reclaim import Overuse, find_overuse
from koord.core.quota.spec_errors import InvalidQuota

_WHAT_IF: Final = "what_if"
"""A name that no pod and no PodGroup can have."""
_THE_GANG: Final = HiddenName("the gang")
_ITS_POD: Final = HiddenName("one of its pods")


@dataclass(frozen=True, slots=True)
class EditResult:
    """The effect of editing a quota: it is refused, or changes shares.

    ``shares`` are (quota, resource, share before, share after) where they differ; ``over`` is
    over-use that the edit would cause. ``starting`` waits now, and would start by the edit;
    ``waiting`` waits in the quota or below it, and would not.
    """

    problem: InvalidQuota | None = None
    shares: tuple[tuple[QuotaName, str, int, int], ...] = ()
    over: tuple[Overuse, ...] = ()
    starting: tuple[WaitingUnit, ...] = ()
    waiting: tuple[WaitingUnit, ...] = ()

    def limited_to(self, keys: Container[str]) -> "EditResult":
        """Return it without what units ask for of other resources."""
        starting, waiting = (_limit(units, keys) for units in (self.starting, self.waiting))
        return replace(self, starting=starting, waiting=waiting)


@dataclass(frozen=True, slots=True)
class GangResult:
    """The outcome of a gang that does not exist.

    ``ahead`` waits in the same quota and would be planned first; ``others`` counts what does in
    other quotas. If the gang would start but for those, it ``starts_alone``. ``room`` is what its
    quota could still hold once those ahead in it run, of the resources that this is too little of.
    """

    reason: Reason
    ahead: tuple[WaitingUnit, ...] = ()
    ahead_elsewhere: int = 0
    starts_alone: bool = False
    room: tuple[tuple[str, int], ...] = ()

    @property
    def nameless(self) -> Reason:
        """The reason without the names that the gang has here."""
        return redact(self.reason, hide_simulated)

    def limited_to(self, keys: Container[str]) -> "GangResult":
        """Return it without what units ask for of other resources."""
        return replace(self, ahead=_limit(self.ahead, keys))


def _limit(units: Iterable[WaitingUnit], keys: Container[str]) -> tuple[WaitingUnit, ...]:
    return tuple(unit.limited_to(keys) for unit in units)


def hide_simulated(kind: NameKind, text: str) -> str:
    """Return a name, or what the simulated gang and its pods are called, which have none."""
    bare = text.rpartition("/")[2]
    if kind is not NameKind.UNIT or not bare.startswith(_WHAT_IF):
        return text
    return _THE_GANG if bare == _WHAT_IF else _ITS_POD


def simulate_gang(
    state: ClusterState,
    quota: QuotaName,
    requests: Amounts,
    pods: int,
    reclaim: ReclaimSetting = UNKNOWN,
) -> GangResult:
    """Return the outcome of a gang of equal pods in a quota; adds them to the state."""
    key = _add_gang(state, quota, requests, pods)
    made = demands(state.gangs, key)
    if not isinstance(made, Ready):
        return GangResult(made)
    state.refresh()
    outcome = plan(state.open_cycle(lambda: find_pending(state)), made.units, Scoring())
    alone = first_refusal(state, made.units, outcome, reclaim)
    waiting_units = find_waits(state, Scoring(), reclaim)
    mine = next((waiting_unit for waiting_unit in waiting_units if waiting_unit.name == key), None)
    if mine is None:
        return GangResult(alone, starts_alone=alone.is_placed)
    before = [
        waiting_unit for waiting_unit in waiting_units if 0 < waiting_unit.position < mine.position
    ]
    ahead = tuple(waiting_unit for waiting_unit in before if waiting_unit.quota == quota)
    return GangResult(
        mine.reason if alone.is_placed else alone,
        ahead,
        len(
            {waiting_unit.position for waiting_unit in before}
            - {waiting_unit.position for waiting_unit in ahead}
        ),
        alone.is_placed,
        tuple(_find_room(state, mine, ahead)),
    )


def _find_room(
    state: ClusterState, mine: WaitingUnit, ahead: Iterable[WaitingUnit]
) -> Iterator[tuple[str, int]]:
    """Yield what max leaves after those ahead, where it is too little for a unit that fits now."""
    account = state.open_ledger().find(mine.quota)
    if account is None:
        return
    free = {key: most - account.used.get(key, 0) for key, most in account.spec.max.items()}
    left = dict(free)
    for waiting_unit in ahead:
        if all(waiting_unit.asks.get(key, 0) <= amount for key, amount in left.items()):
            left = {key: amount - waiting_unit.asks.get(key, 0) for key, amount in left.items()}
    for key, amount in sorted(left.items()):
        if amount < mine.asks.get(key, 0) <= free[key]:
            yield key, amount


def _add_gang(state: ClusterState, quota: QuotaName, requests: Amounts, pods: int) -> GangKey:
    shape = PodShape(tuple(sorted({**requests, PODS: 1}.items())))
    spec = state.quotas.catalog.written_as(quota)
    namespace = spec.namespace if spec is not None else _WHAT_IF
    key = make_gang_key(namespace, _WHAT_IF)
    settings = GangSpec(key, pods, pods, 0, group=(key,), source=GangSource.ANNOTATION)
    claim = GangMembership(key, GangSource.ANNOTATION, settings)
    youngest = max((pod.created for pod in state.pods.values()), default=0.0)
    made = (
        Pod(
            uid=f"{_WHAT_IF}-{at}",
            namespace=namespace,
            name=f"{_WHAT_IF}-{at}",
            shape=shape,
            handling=Handling.RELEASE_AND_BIND,
            gang=claim,
            created=youngest + 1,  # of equal priority it comes last
            quota=quota,
        )
        for at in range(pods)
    )
    Submit(tuple(made)).apply(Trial(state))
    return key


def simulate_edit(state: ClusterState, spec: QuotaSpec) -> EditResult:
    """Return the effect of new settings of a quota; changes the state."""
    shares = view_shares(state)
    was_over = {(overuse.quota, overuse.resource) for overuse in find_overuse(state.open_ledger())}
    started = {
        (waiting_unit.name, waiting_unit.quota)
        for waiting_unit in find_waits(state, Scoring())
        if waiting_unit.reason.is_placed
    }
    SetQuota(spec).apply(Trial(state))
    after = state.open_ledger()
    problem = state.quotas.catalog.problems.get(key_of(spec))
    if problem is not None:
        return EditResult(problem)
    changed = [
        (change.quota, change.resource, change.before, change.after)
        for change in compare_shares(shares, view_shares(state))
    ]
    over = [
        overuse
        for overuse in find_overuse(after)
        if (overuse.quota, overuse.resource) not in was_over
    ]
    family = state.quotas.catalog.registry.family(spec.name)
    waits = find_waits(state, Scoring())
    placed = [waiting_unit for waiting_unit in waits if waiting_unit.reason.is_placed]
    return EditResult(
        None,
        tuple(changed),
        tuple(over),
        tuple(
            waiting_unit
            for waiting_unit in placed
            if (waiting_unit.name, waiting_unit.quota) not in started
        ),
        tuple(
            waiting_unit
            for waiting_unit in waits
            if not waiting_unit.reason.is_placed and waiting_unit.quota in family
        ),
    )


@encode.register
def _(answer: GangResult) -> dict[str, Any]:
    return {
        "starts": answer.reason.is_placed,
        "startsAlone": answer.starts_alone,
        "reason": str(answer.reason.code),
        "message": answer.nameless.text(),
        "ahead": encode(answer.ahead),
        "aheadElsewhere": answer.ahead_elsewhere,
        "roomAfterAhead": encode_amounts(dict(answer.room)),
    }


@encode.register
def _(answer: EditResult) -> dict[str, Any]:
    return {
        "problem": encode(answer.problem),
        "shares": [
            {
                "quota": quota,
                "resource": key,
                "entitled": format_amount(key, before),
                "then": format_amount(key, after),
            }
            for quota, key, before, after in answer.shares
        ],
        "over": {
            f"{overuse.quota}/{overuse.resource}": format_amount(overuse.resource, overuse.over)
            for overuse in answer.over
        },
        "starting": encode(answer.starting),
        "waiting": encode(answer.waiting),
    }
