"""The rounds of policies that move pods, and their status: what all kinds of such policies share.

A round that is due decides what moves, and orders PodMigrationJobs for it; what becomes of a job is
not known here, and nothing is evicted. What later rounds need is in the status and in the jobs,
with whole seconds, so that a restart changes nothing. What is decided is up to the kind.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from koord.controllers.coalescing import Pause
from koord.controllers.status_author import StatusAuthor
from koord.controllers.status_controller import ChangedInputs
from koord.core.engine.policies import ObservedPolicy
from koord.core.engine.state import ClusterState
from koord.core.model.budgets import Budget
from koord.kube.errors import KubeError
from koord.kube.evictor import Evictor
from koord.kube.migration_jobs import MigrationOrders, MoveOrder
from koord.kube.status import ConditionPatch

READY: Final = "Ready"
_PAUSE: Final = Pause(0.5, 1.5)


class RoundSettings(Protocol):
    """What the settings of every kind say."""

    @property
    def is_paused(self) -> bool: ...

    @property
    def interval(self) -> float:
        """Seconds from one round to the next."""


S = TypeVar("S", bound=RoundSettings)


@dataclass(slots=True, kw_only=True)
class Rounds:
    """The rounds of one policy so far."""

    uid: str
    moves: int = 0
    """Jobs that were ordered."""
    fields: dict[str, Any] = field(default_factory=dict)
    """What the status says of them."""
    next_at: float = 0.0
    error: str = ""
    """Why the last round has failed; ``look_error``: the last look between two rounds."""
    look_error: str = ""


R = TypeVar("R", bound=Rounds)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why there are no rounds, and after how many seconds to look again; None: at a change."""

    reason: str
    text: str
    again: float | None = None


_INVALID: Final = Obstacle("Invalid", "there are no valid settings; nothing is moved")


@dataclass(frozen=True, slots=True)
class RoundInputs:
    """What a round has to know that only the API server does."""

    budgets: tuple[Budget, ...] = ()
    ordered: frozenset[str] = frozenset()
    """Pods that have a job, by uid or key."""
    running: int = 0
    """Jobs of this kind of policy that are not over."""
    moving: Mapping[str, str] = field(default_factory=dict)
    """Pods of jobs that are not over, by uid or key, with the node that they go to, or ""."""


@dataclass(slots=True)
class PolicyRounds(Generic[S, R]):
    """Runs the rounds that are due, and writes their status; ``clock`` is the time of the epoch."""

    creator: ClassVar[str]
    """What the jobs name as their creator."""
    while_paused: ClassVar[str]

    state: ClusterState
    author: StatusAuthor[str, ObservedPolicy[S]]
    status_of: Callable[[str], Mapping[str, Any] | None]
    """Returns the status that an object shows, by its uid."""
    evictor: Evictor
    """Only to read disruption budgets."""
    orders: MigrationOrders
    clock: Callable[[], float]
    _rounds: dict[str, R] = field(default_factory=dict, init=False)
    _inputs: ChangedInputs[str] = field(default_factory=ChangedInputs, init=False)

    # --- what a kind of policy says ---------------------------------------------------------------

    @property
    @abstractmethod
    def policies(self) -> Mapping[str, ObservedPolicy[S]]:
        """All policies by name."""

    @abstractmethod
    def begin(self, policy: ObservedPolicy[S], shown: Mapping[str, Any]) -> R:
        """Return the rounds so far, as the status of a policy shows them."""

    @abstractmethod
    async def run(self, settings: S, rounds: R, inputs: RoundInputs, now: float) -> None:
        """Decide one round, and order its moves."""

    @abstractmethod
    def tell(self, settings: S, rounds: R) -> tuple[str, str]:
        """Return reason and text of the condition after a round that has not failed."""

    def find_obstacle(self, policy: ObservedPolicy[S], settings: S) -> Obstacle | None:  # noqa: ARG002 - for overriding
        """Return why a policy with valid settings has no rounds."""
        return None

    async def look(self, settings: S, rounds: R, now: float) -> float | None:  # noqa: ARG002 - for overriding
        """Do what is due more often than rounds; return after how many seconds again."""
        return None

    def goes_on_without(self, settings: S) -> bool:  # noqa: ARG002 - for overriding
        """Whether there is a round, too, while budgets and jobs cannot be read."""
        return False

    # --- the loop ---------------------------------------------------------------------------------

    def changed(self) -> list[str]:
        return self._inputs.compare(self.policies, self.policies.get)

    def pause_for(self, _name: str) -> Pause:
        return _PAUSE

    async def update(self, name: str) -> float | None:
        """Run a round if it is due; return after how many seconds the next one is."""
        policy = self.policies.get(name)
        if policy is None:
            self._rounds.pop(name, None)
            return None
        rounds, settings = self._rounds_of(policy), policy.settings
        obstacle = _INVALID if settings is None else self._find_obstacle(policy, settings)
        if obstacle is not None or settings is None:
            obstacle = obstacle or _INVALID
            self._write(policy, rounds, obstacle.reason, obstacle.text)
            return obstacle.again
        now = float(int(self.clock()))  # as a status keeps it
        if now >= rounds.next_at:
            rounds.next_at = now + settings.interval
            await self._run(settings, rounds, now)
            if self.policies.get(name) is None:
                return None  # deleted meanwhile, which is a change of its own
        again = await self.look(settings, rounds, now)
        if self.policies.get(name) is None:
            return None
        error = rounds.error or rounds.look_error
        reason, text = ("Failed", error) if error else self.tell(settings, rounds)
        self._write(policy, rounds, reason, text, is_ready=not error)
        pause = rounds.next_at - now
        return max(1.0, pause if again is None else min(pause, again))

    def _find_obstacle(self, policy: ObservedPolicy[S], settings: S) -> Obstacle | None:
        if settings.is_paused:
            return Obstacle("Paused", self.while_paused)
        return self.find_obstacle(policy, settings)

    def _rounds_of(self, policy: ObservedPolicy[S]) -> R:
        rounds = self._rounds.get(policy.name)
        if rounds is None or rounds.uid != policy.uid:
            shown = self.status_of(policy.uid) or {}
            rounds = self._rounds[policy.name] = self.begin(policy, shown)
        return rounds

    async def _run(self, settings: S, rounds: R, now: float) -> None:
        rounds.error = ""
        inputs = await self.read_inputs()
        if isinstance(inputs, str):
            rounds.error = inputs
            if not self.goes_on_without(settings):
                return  # what is not known is not risked
            inputs = RoundInputs()
        await self.run(settings, rounds, inputs, now)

    async def read_inputs(self) -> RoundInputs | str:
        """Return what only the API server knows, or why it cannot be read."""
        try:
            budgets = await self.evictor.list_budgets()
            ordered = await self.orders.list(self.creator)
        except KubeError as error:
            return f"disruption budgets and PodMigrationJobs cannot be read: {error}"
        return RoundInputs(budgets, ordered.pods, ordered.running, ordered.moving)

    async def order(self, order: MoveOrder, rounds: R) -> bool | None:
        """Order a job; return whether it is new. None: it failed, as others would by now."""
        try:
            is_new = await self.orders.create(order)
        except KubeError as error:
            rounds.error = f"a PodMigrationJob cannot be created: {error}"
            return None
        rounds.moves += is_new
        return is_new

    def _write(
        self,
        policy: ObservedPolicy[S],
        rounds: R,
        reason: str,
        text: str,
        *,
        is_ready: bool = False,
    ) -> None:
        ready = ConditionPatch(READY, is_ready, reason, text, policy.generation)
        kept = {"lastValidSpec": dict(policy.kept)} if policy.kept else {}
        self.author.write_status(policy, {**rounds.fields, **kept}, (ready,))

    def totals(self) -> Iterable[tuple[tuple[str], float]]:
        """Yield policy and how many moves it has ordered."""
        for name, rounds in self._rounds.items():
            yield (name,), rounds.moves
