"""Why it is not a unit's turn."""

from dataclasses import dataclass, field
from typing import ClassVar

from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import Reason, WakesOn

NAME = "queue"


@dataclass(frozen=True, slots=True)
class NotItsTurn(Reason):
    """Base of the reasons of queues: room does not help, only a change of what they count."""

    reason_class: ClassVar = ReasonClass.ORDER
    wakes_on: ClassVar = WakesOn.DOMAIN
    domain: ClassVar = NAME


@dataclass(frozen=True, slots=True)
class HeldByOwner(NotItsTurn):
    """Its owner holds it back with the annotation `operators.koordinator.sh/queue-hold`."""

    code: ClassVar = "Held"
    reason_class: ClassVar = ReasonClass.HELD
    way_out: ClassVar = "take the annotation `operators.koordinator.sh/queue-hold` off"
    says: ClassVar = "it is held: operators.koordinator.sh/queue-hold is true"
    advises: ClassVar = ("Take the annotation operators.koordinator.sh/queue-hold off.",)


@dataclass(frozen=True, slots=True)
class QueueStopped(NotItsTurn):
    """Nothing new starts in its queue: a quota says `stop: Hold`, or `HoldAndDrain`."""

    code: ClassVar = "QueueStopped"
    reason_class: ClassVar = ReasonClass.HELD
    way_out: ClassVar = "wait until the administrators let the queue go on"
    says: ClassVar = "nothing new starts in queue {queue} (stop: {stop})"
    advises: ClassVar = ("{ask} set stop of queue {queue} to None.",)
    queue: str
    stop: str


@dataclass(frozen=True, slots=True)
class QueueLimitReached(NotItsTurn):
    """Base of the reasons that a limit of a queue, or of its ``user`` there, is reached."""

    queue: str
    user: str

    @property
    def _whom(self) -> str:
        return f"{self.user} in queue {self.queue}" if self.user else f"queue {self.queue}"


@dataclass(frozen=True, slots=True)
class TooManyRunning(QueueLimitReached):
    """As many units of its queue, or of its user there, have started as may."""

    code: ClassVar = "MaxRunning"
    reason_class: ClassVar = ReasonClass.QUOTA
    way_out: ClassVar = "wait until a unit of the queue ends; ask for a larger `maxRunning`"
    says: ClassVar = "{running} units of {_whom} have started, and {limit} may ({setting})"
    advises: ClassVar = ("Wait until one of them ends, or {ask} raise {setting} of {queue}.",)
    running: int
    limit: int
    setting: str


@dataclass(frozen=True, slots=True)
class QueueFull(QueueLimitReached):
    """More units wait in its queue, or of its user there, than may: it is parked behind them."""

    code: ClassVar = "QueueFull"
    reason_class: ClassVar = ReasonClass.QUOTA
    way_out: ClassVar = "wait until earlier units start; ask for a larger `maxPending`"
    says: ClassVar = "{limit} units of {_whom} wait before it, and no more may ({setting})"
    advises: ClassVar = ("Wait until some of them start, or {ask} raise {setting} of {queue}.",)
    limit: int
    setting: str


@dataclass(frozen=True, slots=True)
class TimeLimitTooLong(NotItsTurn):
    """It may run longer than its queue allows."""

    code: ClassVar = "TimeLimitTooLong"
    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    way_out: ClassVar = "lower its limit; ask for a larger `maxRunTime`"
    says: ClassVar = (
        "{pod} may run for {limit:,} s, and units of queue {queue} for {most:,} s (maxRunTime)"
    )
    advises: ClassVar = (
        "Lower its max-run-time or activeDeadlineSeconds, or {ask} raise maxRunTime of {queue}.",
    )
    pod: str
    limit: int
    most: int
    queue: str


@dataclass(frozen=True, slots=True)
class TimeLimitReached(NotItsTurn):
    """Those that it replaces have run for as long as the run may take."""

    code: ClassVar = "TimeLimitReached"
    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    way_out: ClassVar = "delete it, or raise `operators.koordinator.sh/max-run-time`"
    says: ClassVar = "the {limit:,} s that {pod} and those before it may run are over"
    advises: ClassVar = ("Delete it, or raise operators.koordinator.sh/max-run-time.",)
    pod: str
    limit: int


@dataclass(frozen=True, slots=True)
class BehindHead(NotItsTurn):
    """The first unit of its queue waits for room that both could use, and may not be passed."""

    code: ClassVar = "BehindHead"
    way_out: ClassVar = "wait until the unit before it starts"
    says: ClassVar = "{head} waits before it, and its queue lets nobody pass that competes with it"
    advises: ClassVar = ("Wait until {head} starts.",)
    head: str


@dataclass(frozen=True, slots=True)
class WouldDelay(NotItsTurn):
    """It fits, but in room that is reserved for a unit before it, which it would delay.

    ``start`` is when that starts at the latest, in seconds since the epoch; None: nobody knows.
    """

    code: ClassVar = "WouldDelay"
    wakes_on: ClassVar = WakesOn.ROOM
    way_out: ClassVar = "say when it ends (`max-run-time`), or wait until the unit before it starts"
    says: ClassVar = "it would delay {head}, for which room is reserved{_when}"
    advises: ClassVar = (
        "Give it a limit that ends before, with operators.koordinator.sh/max-run-time.",
    )
    head: str
    start: int | None = None
    now: int = field(default=0, compare=False)

    @property
    def _when(self) -> str:
        if self.start is None:
            return " until enough pods have ended"
        return f" in {max(0, self.start - self.now)} s"


@dataclass(frozen=True, slots=True)
class FailsAtOnce(NotItsTurn):
    """Its pods have failed soon after each of its last starts: it is tried again after a pause.

    Its place in the queue stays; others do not wait for it meanwhile.
    """

    code: ClassVar = "FailsAtOnce"
    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    way_out: ClassVar = "look at the logs and events of its pods"
    says: ClassVar = (
        "its pods failed within a minute {failures:# time} in a row; it is tried again at "
        "{until:time}"
    )
    advises: ClassVar = ("See with kubectl logs why its pods failed.",)
    failures: int
    until: float
