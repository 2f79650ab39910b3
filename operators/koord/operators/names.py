"""Names of operators: what ``koord run --operator`` takes, and what their Leases are called after.

Only those that more than one module speaks of; the others stand in the modules of the operators.
"""

from typing import Final

PLACEMENT: Final = "placement"
"""The operator that plans. The command line plans too, so it reads what this operator reads."""
POD_GROUP: Final = "podgroup"
QUOTA: Final = "elasticquota"
PROFILE: Final = "elasticquotaprofile"
TOPOLOGY: Final = "networktopology"
DEVICE: Final = "device"
RESERVATION: Final = "reservation"
COLOCATION: Final = "colocationpolicy"
COLOCATION_PROFILE: Final = "clustercolocationprofile"
