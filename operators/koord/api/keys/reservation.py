"""Reservations: which pods may use them, and what they hold back."""

from typing import Final

PREFIX: Final = "scheduling.koordinator.sh/"

IGNORED: Final = f"{PREFIX}reservation-ignored"
"""Pod label: "true" lets the pod use what reservations hold, without owning any."""
AFFINITY: Final = f"{PREFIX}reservation-affinity"
"""Pod annotation, JSON: which reservations the pod must use."""
EXACT_MATCH: Final = f"{PREFIX}exact-match-reservation"
"""Pod annotation, JSON: resources in which pod and reservation must be equal."""
ALLOCATED: Final = f"{PREFIX}reservation-allocated"
"""Pod annotation (result), JSON: name and uid of the reservation that the pod uses."""

ORDER: Final = f"{PREFIX}reservation-order"
"""Reservation label, integer: lower is used first; 0 means no order."""
RESTRICTED_OPTIONS: Final = f"{PREFIX}reservation-restricted-options"
"""Reservation annotation, JSON: resources that the policy Restricted is about."""
RESIZE_ALLOCATABLE: Final = f"{PREFIX}reservation-resize-allocatable"
"""Reservation annotation, JSON: resources that replace those of the template."""
INNER_RESERVED: Final = "node.koordinator.sh/reservation"
"""Reservation annotation, JSON: a part that no owner may use. On a node: what pods may not use."""

OWNERS: Final = f"{PREFIX}reservation-owners"
"""Annotation of a pod that is itself a reservation, JSON: a list like spec.owners."""
CURRENT_OWNER: Final = f"{PREFIX}reservation-current-owner"
"""Pod annotation (result), JSON: of a pod that is itself a reservation, the pod that uses it."""

PRE_ALLOCATION_REQUIRED: Final = f"{PREFIX}pre-allocation-required"
"""Reservation label: "true" if it must take in a running pod."""
PRE_ALLOCATABLE: Final = "pod.koordinator.sh/is-pre-allocatable"
"""Pod label: "true" lets reservations of the mode Cluster take the pod in."""
PRE_ALLOCATABLE_PRIORITY: Final = "pod.koordinator.sh/pre-allocatable-priority"
"""Pod annotation, integer: of such pods, a higher one is taken in first."""
PRIORITY: Final = "koordinator.sh/priority"
"""Reservation label, integer: its priority, where the template has none."""
