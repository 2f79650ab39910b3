"""What the status of a quota says of its GPU hours of this month.

Knows neither how they are counted nor what follows from them.
"""

from typing import Annotated

from pydantic import Field

from koord.api.model import Model
from koord.api.resource import Int64


class BudgetStatus(Model):
    """What a quota has used of its GPU hours of a month; kept over a restart."""

    month: Annotated[str, Field(max_length=7)] = ""
    """The month, of UTC."""
    gpu_hours: Annotated[str, Field(max_length=32)] = ""
    """The GPU hours that its pods have held."""
    max_gpu_hours: Int64 = 0
    """How many may be, before nothing new starts."""
    held: Int64 = 0
    """The same as `gpuHours`, exactly: thousandths of GPUs times milliseconds."""
    until: Int64 = 0
    """Until when that is counted, in milliseconds since the epoch."""
