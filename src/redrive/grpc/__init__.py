"""gRPC retries: each status code is retried by the channel or by Redrive, never by both. Extra: `grpc`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazily
from .call import retry
from .channel import channel_options, path

if TYPE_CHECKING:
    from .interceptor import AsyncInterceptor as AsyncInterceptor
    from .interceptor import Interceptor as Interceptor

__all__ = ["AsyncInterceptor", "Interceptor", "channel_options", "path", "retry"]


if not TYPE_CHECKING:  # a checker that saw this would let every misspelt name pass
    # Options and policies are only data; grpcio is loaded for what is a class of its own.
    __getattr__ = lazily(__name__, dict.fromkeys(("AsyncInterceptor", "Interceptor"), "interceptor"))
