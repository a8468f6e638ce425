"""Tools for tests: a clock that you move, injected faults, fault servers and a sandbox."""

from __future__ import annotations

from ..core.lazy import lazily

TYPE_CHECKING = False  # importing it from typing takes 10 ms; type checkers know the name
if TYPE_CHECKING:
    from .app_sandbox import Sandbox as Sandbox
    from .app_sandbox import sandbox as sandbox
    from .clock import FakeClock as FakeClock
    from .clock import instant as instant
    from .faults import Injected as Injected
    from .faults import inject as inject
    from .grpc_server import GrpcAnswer as GrpcAnswer
    from .grpc_server import GrpcCall as GrpcCall
    from .grpc_server import GrpcFaultServer as GrpcFaultServer
    from .http_server import Answer as Answer
    from .http_server import FaultServer as FaultServer
    from .http_server import refused as refused
    from .http_server import unreachable as unreachable
    from .items_conformance import ItemsConformance as ItemsConformance
    from .source_conformance import SourceConformance as SourceConformance

_HOMES = {
    "Answer": "http_server",
    "FakeClock": "clock",
    "FaultServer": "http_server",
    "GrpcAnswer": "grpc_server",
    "GrpcCall": "grpc_server",
    "GrpcFaultServer": "grpc_server",
    "Injected": "faults",
    "ItemsConformance": "items_conformance",
    "Sandbox": "app_sandbox",
    "SourceConformance": "source_conformance",
    "inject": "faults",
    "instant": "clock",
    "refused": "http_server",
    "sandbox": "app_sandbox",
    "unreachable": "http_server",
}
__all__ = [*_HOMES]  # noqa: PLE0604  # the names are listed once, above


if not TYPE_CHECKING:  # otherwise type checkers would accept every misspelt name
    # Loaded at first use, because pytest loads the plugin of this package in every run.
    __getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
