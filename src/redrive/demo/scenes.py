"""The scenes, in the order in which they are shown. A new one is a file of its own, and a name here."""

from __future__ import annotations

from importlib.util import find_spec

from .commands import PARKED
from .messages import MESSAGES
from .nesting import NESTING
from .outage import OUTAGE
from .patience import PATIENCE
from .recovery import RECOVERY
from .rescue import RESCUE
from .scene import Scene
from .uploads import UPLOADS
from .whole import WHOLE


def _with_grpc() -> tuple[Scene, ...]:
    if find_spec("grpc") is None:  # the one scene that needs more than a ledger: left out, where its extra is
        return ()
    from .incident import INCIDENT  # noqa: PLC0415

    return (INCIDENT,)


SCENES = (RECOVERY, OUTAGE, NESTING, PATIENCE, RESCUE, *_with_grpc(), UPLOADS, PARKED, MESSAGES, WHOLE)
