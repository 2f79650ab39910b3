"""A month of two teams, as a store would tell it: one borrows, one is owed, work is lost."""

from collections import Counter

from koord.core.usage.book import BookKey, BookSum, LossKey, OwnerKey, UsageBook
from koord.core.usage.cluster_time import GpuState
from koord.core.usage.quota_time import QuotaTime
from koord.core.usage.segments import Window

GPU_HOUR = 3_600_000_000


def share(used: float, guaranteed: float, owed: float = 0, lent: float = 0) -> QuotaTime:
    """Return amounts that belong together, given in GPU hours."""
    within = min(used, guaranteed)
    amounts = {
        "used": used,
        "guaranteed": guaranteed,
        "within_min": within,
        "borrowed": used - within,
        "owed": owed,
        "idle_min": guaranteed - within - owed,
        "lent": lent,
    }
    return QuotaTime(**{name: round(amount * GPU_HOUR) for name, amount in amounts.items()})


def make_book(window: Window) -> UsageBook:
    """Return what is known of a month; the names are those of the docs."""
    book = UsageBook(window, unseen=0, uncertain=42_000)
    book.above = {"org": "", "research": "org", "vision": "org"}
    held = (
        ("research", "team-nlp", "ada", "team-nlp/llm", 38_420.5),
        ("research", "team-nlp", "alan", "team-nlp/eval-3", 1_204.25),
        ("research", "team-speech", "grace", "team-speech/asr", 9_100.0),
        ("vision", "team-vision", "edgar", "team-vision/detect", 21_310.75),
        ("vision", "team-vision", "barbara", "team-vision/notebook-7", 96.5),
    )
    for quota, namespace, user, owner, hours in held:
        amount = round(hours * GPU_HOUR)
        book.add(BookKey(quota, namespace, user, "H100", "koord-prod"), BookSum(amount))
        book.owners[OwnerKey(quota, owner, "H100")] += amount
    book.quotas = {
        "org": share(70_132.0, 89_280.0, owed=214.5),
        "research": share(48_724.75, 59_520.0, owed=214.5, lent=6_527.25),
        "vision": share(21_407.25, 14_880.0),
    }
    book.cluster = {
        "H100": Counter(
            {
                GpuState.USED: 70_132 * GPU_HOUR,
                GpuState.RESERVED: 320 * GPU_HOUR,
                GpuState.IDLE: 17_500 * GPU_HOUR,
                GpuState.UNUSABLE: 760 * GPU_HOUR,
                GpuState.BROKEN: 168 * GPU_HOUR,
                GpuState.DOWN: 400 * GPU_HOUR,
            }
        )
    }
    at_most = ("vision", "team-vision", "team-vision/detect", "Preempted", "AtMost")
    book.losses[LossKey(*at_most, "team-nlp/llm")] += 72 * GPU_HOUR
    saved = ("research", "team-speech", "team-speech/asr", "NodeLost", "Checkpoint")
    book.losses[LossKey(*saved, "")] += 4 * GPU_HOUR
    return book
