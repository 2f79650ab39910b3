"""The operator ``elasticquotaprofile``: writes the root quotas of profiles, and their status."""

from typing import TYPE_CHECKING, Final

from koord.api.quotaprofile import ElasticQuotaProfile
from koord.controllers.quota_profile import ProfileStatusPolicy
from koord.controllers.status_publishing import StatusPublisher
from koord.domains.placement import NODES
from koord.domains.quota import PROFILES, QUOTAS
from koord.kube.objects import ref_of_profile
from koord.kube.quota_objects import RootQuotaWriter
from koord.kube.status import AFTER_BINDINGS, applied_by
from koord.kube.write_check import Write
from koord.operators.names import PROFILE
from koord.operators.operator import Operator

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts


def start(parts: "Parts") -> None:
    seen = parts.reader.translator(PROFILES)
    writer = parts.make_writer(
        PROFILES.plural,
        applied_by("koord-elasticquotaprofile-tree"),
        lambda ref: seen.status_of(ref.uid),
        pace=AFTER_BINDINGS,
    )
    policy = ProfileStatusPolicy(
        state=parts.reader.state,
        sink=StatusPublisher(writer, ref_of_profile),
        quotas=RootQuotaWriter(parts.client),
        meta_of=parts.reader.translator(QUOTAS).meta_of,
    )
    parts.keep_status(policy)


OPERATOR: Final = Operator(
    PROFILE,
    ElasticQuotaProfile,
    start,
    reads=(NODES, QUOTAS, PROFILES),
    writes=frozenset(
        {
            Write("quota.koordinator.sh", "elasticquotaprofiles/status", "patch"),
            Write("scheduling.sigs.k8s.io", "elasticquotas", "create"),
            Write("scheduling.sigs.k8s.io", "elasticquotas", "patch"),
        }
    ),
)
