"""Tools for your tests: a clock that you move, injected faults, fault servers, and a worker that you step."""

from __future__ import annotations

from ..core.lazy import lazily

TYPE_CHECKING = False  # as in the root: typing's own would cost 10 ms
if TYPE_CHECKING:
    from .box import Sandbox as Sandbox
    from .box import sandbox as sandbox
    from .clock import FakeClock as FakeClock
    from .clock import instant as instant
    from .faults import Injected as Injected
    from .faults import inject as inject
    from .grpc_server import GrpcAnswer as GrpcAnswer
    from .grpc_server import GrpcCall as GrpcCall
    from .grpc_server import GrpcFaultServer as GrpcFaultServer
    from .items import ItemsConformance as ItemsConformance
    from .server import Answer as Answer
    from .server import FaultServer as FaultServer
    from .server import refused as refused
    from .server import unreachable as unreachable

_HOMES = {
    "Answer": "server",
    "FakeClock": "clock",
    "FaultServer": "server",
    "GrpcAnswer": "grpc_server",
    "GrpcCall": "grpc_server",
    "GrpcFaultServer": "grpc_server",
    "Injected": "faults",
    "ItemsConformance": "items",
    "Sandbox": "box",
    "inject": "faults",
    "instant": "clock",
    "refused": "server",
    "sandbox": "box",
    "unreachable": "server",
}
__all__ = [*_HOMES]  # noqa: PLE0604  # the names are listed once, above


if not TYPE_CHECKING:  # a checker that saw this would let every misspelt name pass
    # Loaded when first asked for: pytest loads the plugin beside this in every run, of whatever project.
    __getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
