"""The domains, and what each brings: the only list that a new domain is added to.

Plugins join a cycle in this order, where they do not name others to come after; reflectors start in
it, pods first; and a Lease of some operators only is called after them in this order, so that it
must not change between releases.
"""

from typing import Final

from koord.domains.domain import Domain

DOMAINS: Final = (
    Domain(
        "placement",
        planning="koord.domains.placement:PLANNING",
        operators=("koord.operators.placement",),
        describe="koord.runtime.descriptions:describe_placement",
    ),
    Domain(
        "gang",
        planning="koord.domains.gang:PLANNING",
        operators=("koord.operators.podgroup",),
    ),
    Domain(
        "quota",
        planning="koord.domains.quota:PLANNING",
        settings={"elastic_quota": "koord.domains.quota_settings:QuotaSettings"},
        operators=("koord.operators.elasticquota", "koord.operators.elasticquotaprofile"),
        start="koord.operators.elasticquota:start_audit",
        describe="koord.runtime.descriptions:describe_quota_state",
    ),
    Domain(
        "reservation",
        planning="koord.domains.reservation:PLANNING",
        settings={"reservation": "koord.domains.reservation_settings:ReservationSettings"},
        operators=("koord.operators.reservation",),
    ),
    Domain(
        "topology",
        planning="koord.domains.topology:PLANNING",
        operators=("koord.operators.networktopology",),
    ),
    Domain(
        "device",
        planning="koord.domains.device:PLANNING",
        settings={"device": "koord.domains.device_settings:DeviceSettings"},
        operators=("koord.operators.device",),
    ),
    Domain("numa", planning="koord.domains.numa:PLANNING"),
    Domain(
        "eviction",
        settings={"preemption": "koord.domains.preemption_settings:PreemptionSettings"},
    ),
)
