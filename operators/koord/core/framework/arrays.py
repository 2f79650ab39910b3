"""Words that all of placement shares: kinds of arrays over node rows, and two constants."""

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Ids: TypeAlias = npt.NDArray[np.int32]

NO_LIMIT: Final = 1 << 40
"""More pods than any node takes."""

HOSTNAME: Final = "kubernetes.io/hostname"
"""The label of which every node has its own value."""
