"""The web console as an ASGI application: `api.mount("/redrive", redrive.console.asgi(app))`. Extra: `console`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..ops.source import Operated

__all__ = ["asgi"]


def asgi(
    app: Operated, /, *, password: str | None = None, token: str | None = None, viewer_password: str | None = None,
    viewer_token: str | None = None, secret: str | None = None, read_only: bool = False,
) -> Any:  # fmt: skip
    """The console of an app, to be mounted in a service of yours or served by any ASGI server. Opens nothing by itself.

    password: for people, who say their name with it; token: for programs, as `Authorization: Bearer …`. With neither it answers
    to this machine alone (loopback address and loopback name).
    viewer_password, viewer_token: the same for those who may look and not act. read_only: nobody may act.
    Each may be given hashed, as `redrive serve --hash` prints it. secret: then signs sessions, where several processes serve
    this.
    """
    from .access import Access  # noqa: PLC0415  # the extra may be missing
    from .site import site  # noqa: PLC0415  # the same

    access = Access(
        password=password, token=token, viewer_password=viewer_password, viewer_token=viewer_token, secret=secret,
        read_only=read_only,
    )  # fmt: skip
    return site(app, access)
