"""The web console as an ASGI application. Extra: `console`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..ops.project.target import Operated

__all__ = ["asgi"]


def asgi(
    app: Operated,
    /,
    *,
    password: str | None = None,
    token: str | None = None,
    viewer_password: str | None = None,
    viewer_token: str | None = None,
    secret: str | None = None,
    read_only: bool = False,
) -> Any:
    """Return the web console as an ASGI application.

    Mount it in your service, or serve it with any ASGI server. Without a password and a token it
    only accepts requests from this machine. Each password and token may be hashed, as `redrive
    serve --hash` prints it. Extra: `console`.

    Args:
        app: The app or the open ledger to show.
        password: Password for people. They enter their name with it.
        token: Token for programs, as `Authorization: Bearer ...`.
        viewer_password: Password for people with read access.
        viewer_token: Token for programs with read access.
        secret: Key that signs sessions. Set it if several processes serve the console.
        read_only: If True, no operator may act.

    Returns:
        The ASGI application. Creating it opens nothing.
    """
    from .application import create_application  # noqa: PLC0415  # the same
    from .security.credentials import AccessControl  # noqa: PLC0415  # the extra may be missing

    access = AccessControl(
        password=password,
        token=token,
        viewer_password=viewer_password,
        viewer_token=viewer_token,
        secret=secret,
        read_only=read_only,
    )
    return create_application(app, access)
