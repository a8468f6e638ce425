"""Retries for gRPC calls. Each status code is retried by the channel or by Redrive, never by both.

Extra: `grpc`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazily
from .retrying import channel_options, path, retry

if TYPE_CHECKING:
    from .interceptor import AsyncInterceptor as AsyncInterceptor
    from .interceptor import Interceptor as Interceptor

__all__ = ["AsyncInterceptor", "Interceptor", "channel_options", "path", "retry"]


if not TYPE_CHECKING:  # A type checker that saw this would accept every misspelt name.
    # Options and policies are plain data. Only the interceptors need grpcio.
    __getattr__ = lazily(
        __name__, dict.fromkeys(("AsyncInterceptor", "Interceptor"), "interceptor")
    )
