"""The web console as an ASGI application. Extra: `console`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.lazy import lazily

if TYPE_CHECKING:
    from ..ops.project.target import Operated
    from ..ops.sign_in.rights import Rights as Rights
    from .security.host import Who
    from .security.oidc import OIDC as OIDC
    from .security.proxy import TrustedProxy as TrustedProxy
    from .security.user import User as User
else:
    __getattr__ = lazily(
        __name__,
        {
            "OIDC": "security.oidc",
            "Rights": ".ops.sign_in.rights",
            "TrustedProxy": "security.proxy",
            "User": "security.user",
        },
    )

__all__ = ["OIDC", "Rights", "TrustedProxy", "User", "asgi"]
CONSOLE_PACKAGES = frozenset(("fastapi", "jinja2", "pydantic", "starlette", "uvicorn"))
"""The packages of the extra."""


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
    who: Who | None = None,
    login_url: str | None = None,
    proxy: TrustedProxy | None = None,
    oidc: OIDC | None = None,
    audit_reads: bool = False,
) -> Any:
    """Return the web console as an ASGI application.

    Mount it in your service, or serve it with any ASGI server. Without a password, a token, `who=`,
    `proxy=` and `oidc=` it only accepts requests from this machine. Each password and token may be
    hashed, as `redrive serve --hash` prints it. Extra: `console`.

    Args:
        app: The app or the open ledger to show.
        password: Password for people. They enter their name with it.
        token: Token for programs, as `Authorization: Bearer ...`.
        viewer_password: Password for people with read access.
        viewer_token: Token for programs with read access.
        secret: Key that signs sessions. Set it if several processes serve the console.
        read_only: If True, no operator may act.
        who: Sync or async function of your application. It gets the ASGI scope of a request, and
            returns its `User`, or None before a sign-in. A sync function runs in a thread.
            If it raises, the request is rejected with 500.
        login_url: Page of your application where users sign in, for `who=`. The requested page
            replaces `{next}`, or is added as `next=`.
        proxy: Proxy that authenticates users, and names them in a header.
        oidc: Provider of OpenID Connect that authenticates people. Extra: `oidc`.
        audit_reads: If True, the audit log records who opened which payload, once in five minutes.

    Returns:
        The ASGI application. Creating it opens nothing.

    Raises:
        TypeError: An option has another type.
        ValueError: An option is not valid.
        ImportError: The extra `console` is not installed.
    """
    try:
        from .application import create_application  # noqa: PLC0415  # the extra may be missing
        from .security.credentials import AccessControl  # noqa: PLC0415  # the same
        from .security.sign_in import make_sign_in  # noqa: PLC0415  # the same
    except ModuleNotFoundError as error:
        if error.name not in CONSOLE_PACKAGES:
            raise
        message = f'console.asgi needs {error.name}: pip install "redrive[console]"'
        raise ImportError(message, name=error.name) from error
    sign_in = make_sign_in(who=who, login_url=login_url, proxy=proxy, oidc=oidc)
    access = AccessControl(
        password=password,
        token=token,
        viewer_password=viewer_password,
        viewer_token=viewer_token,
        secret=secret,
        read_only=read_only,
        has_users=sign_in.has_users,
    )
    return create_application(app, access, sign_in, audit_reads=audit_reads)
