"""What a leader says of itself in an annotation of its Lease, with each renewal.

It costs no write of its own, and whoever may read the Lease sees it. Knows nothing of what the
leader does; readers accept what a later release adds, and what an earlier one leaves out.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from koord.core.model.patience import Patience
from koord.core.quota.model import TerminatingUse
from koord.kube.decode import MALFORMED

MAX_ERROR: Final = 512


class PreemptionReport(Struct, rename="camel", frozen=True, omit_defaults=True):
    """The settings of preemption, as in the configuration; times are in seconds."""

    enabled: bool = True
    min_runtime: float = 0.0
    max_per_day: int = 0
    stuck_after: float = 60.0
    grace_limit: float = 600.0
    soft_eviction_limit: float = 300.0

    @property
    def patience(self) -> Patience:
        return Patience(self.stuck_after, self.grace_limit, self.soft_eviction_limit)


class QuotaReport(Struct, rename="camel", frozen=True, omit_defaults=True):
    """The rules of quotas that were chosen; the names are those of ``QuotaOptions``.

    Without the namespaces that may use built-in quotas: there may be a thousand.
    """

    limits_by_share: bool = True
    guarantees_usage: bool = False
    has_default_quota: bool = True
    parents_take_pods: bool = False
    counts_overhead: bool = True
    terminating_use: TerminatingUse = TerminatingUse.UNTIL_GONE


class LeaderReport(Struct, rename="camel", frozen=True, omit_defaults=True):
    """Numbers of units: ``ready`` are planned next, ``blocked`` wait, ``incomplete`` lack members.

    ``not_ready`` names what is not read yet, or stale. ``reclaim_after`` is how many seconds
    over-use of a quota lasts before it is reclaimed; None: it is not. ``reclaim_budget_grace`` is
    how many seconds disruption budgets then protect pods; None: it does not say.
    ``refused``: the writes that the API server refuses, with its answers.
    ``open_namespaces`` are some of those that quotas cover and nothing makes pods opt in; there are
    ``open_count``, None if that is not known, beside ``enforced`` where pods must opt in.
    ``feed`` is the address at which it serves records of its decisions; empty: it does not.
    ``compat``: it follows Koordinator's behaviour where the two differ.
    ``load`` is the section ``loadAware`` without defaults; None: load does not count.
    ``migration`` and ``autoscaler`` are those sections, likewise.
    ``suspend``: it resumes suspended Jobs that ask for it.
    ``owners`` are the kinds that a site has added to those of which gangs are found from owners, as
    in the configuration; None: no gangs are found from owners.
    ``preemption`` and ``quota`` are None in the report of a leader that does not say.
    """

    version: str = ""
    not_ready: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    ready: int | None = None
    blocked: int | None = None
    incomplete: int | None = None
    reasons: Mapping[str, int] = {}
    reclaim_after: float | None = None
    reclaim_budget_grace: float | None = None
    preemption: PreemptionReport | None = None
    quota: QuotaReport | None = None
    load: Mapping[str, Any] | None = None
    migration: Mapping[str, Any] | None = None
    autoscaler: Mapping[str, Any] | None = None
    suspend: bool = False
    owners: tuple[Mapping[str, Any], ...] | None = None
    compat: bool = False
    feed: str = ""
    open_namespaces: tuple[str, ...] = ()
    open_count: int | None = None
    enforced: int = 0
    last_error: str = ""
    last_error_at: str = ""

    @property
    def delays(self) -> tuple[float | None, Patience]:
        """How long disruption budgets protect pods, and pods that leave are waited for."""
        return self.reclaim_budget_grace, (self.preemption or PreemptionReport()).patience


def encode_report(report: LeaderReport) -> str:
    return msgspec.json.encode(report).decode()


def decode_report(text: str | None) -> LeaderReport | None:
    """Return the report; None if there is none, or none that makes sense."""
    try:
        return msgspec.json.decode(text, type=LeaderReport) if text else None
    except MALFORMED:
        return None
