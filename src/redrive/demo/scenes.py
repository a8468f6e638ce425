"""The scenes, in the order in which they are shown. A new one is a file of its own, and a name here."""

from __future__ import annotations

from .commands import PARKED
from .incident import INCIDENT
from .nesting import NESTING
from .outage import OUTAGE
from .patience import PATIENCE
from .recovery import RECOVERY
from .rescue import RESCUE
from .uploads import UPLOADS
from .whole import WHOLE

SCENES = (RECOVERY, OUTAGE, NESTING, PATIENCE, RESCUE, INCIDENT, UPLOADS, PARKED, WHOLE)
