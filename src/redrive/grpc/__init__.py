"""gRPC: the channel's own retries, and ours around a call, each status code owned by one of them. Extra: `grpc`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .call import retry
from .channel import channel_options, path

if TYPE_CHECKING:
    from .interceptor import AsyncInterceptor as AsyncInterceptor
    from .interceptor import Interceptor as Interceptor

__all__ = ["AsyncInterceptor", "Interceptor", "channel_options", "path", "retry"]


if not TYPE_CHECKING:  # a checker that saw this would let every misspelt name pass

    def __getattr__(name: str) -> Any:
        # Options and policies are only data; grpcio is loaded for what is a class of its own.
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415

        return getattr(import_module(f"{__name__}.interceptor"), name)
