"""The operator ``clustercolocationprofile``: makes admission policies of profiles."""

from typing import TYPE_CHECKING, Final

from koord.api.clustercolocationprofile import ClusterColocationProfile
from koord.controllers.colocation_profiles import ColocationProfilePolicy
from koord.core.profiles.plugin import ColocationProfiles
from koord.core.reservation.plugin import Reservations
from koord.domains.profile_settings import ProfileSettings
from koord.domains.profiles import COLOCATION_PROFILES
from koord.domains.reservation import PRIORITY_CLASSES
from koord.kube.admission_policies import PolicyWriter
from koord.kube.objects import ref_of_colocation_profile
from koord.kube.write_check import Write
from koord.operators.names import COLOCATION_PROFILE
from koord.operators.operator import Operator

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts

SYSTEM_NAMESPACE: Final = "kube-system"


def start(parts: "Parts") -> None:
    state = parts.reader.state
    author = parts.make_author(
        OPERATOR,
        parts.reader.translator(COLOCATION_PROFILES),
        lambda meta: str(meta["name"]),
        ref_of_colocation_profile,
    )
    policy = ColocationProfilePolicy(
        lambda: state.plugin(ColocationProfiles).profiles,
        lambda: state.plugin(Reservations).classes,
        PolicyWriter(parts.client),
        author,
        parts.settings.of(ProfileSettings).enabled,
        lambda: (SYSTEM_NAMESPACE, parts.namespace),
    )
    parts.handle(author, parts.keep_status(policy, author))


OPERATOR: Final = Operator(
    COLOCATION_PROFILE,
    ClusterColocationProfile,
    start,
    reads=(PRIORITY_CLASSES, COLOCATION_PROFILES),
    writes=frozenset(
        {
            Write("config.koordinator.sh", "clustercolocationprofiles/status", "patch"),
            Write("events.k8s.io", "events", "create"),
        }
    ),
)
