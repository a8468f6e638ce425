"""Idempotency records: list, show and release them."""

from __future__ import annotations

from typing import get_args

from fastapi import APIRouter, Response

from ...errors import NotAllowed
from ..queries import KeyQuery, KeyStatus
from ..render.errors import require
from ..view import CurrentView

router = APIRouter()


@router.get("/keys")
def keys(view: CurrentView) -> Response:
    """Show idempotency records by domain, user and key. key= opens one."""
    key = view.text("key")
    if key is not None:
        return view.redirect("/keys/show", key=key)
    query = view.read_query(KeyQuery)
    arguments = query.arguments()
    return view.render(
        "keys.html",
        keys=view.operator.keys.find(**arguments),
        query=query,
        arguments=arguments,
        statuses=("", *get_args(KeyStatus)),
        now=view.operator.now(),
    )


@router.get("/keys/show")
def key(view: CurrentView) -> Response:
    """Show one idempotency record."""
    return _render_key(view, view.query.get("key", ""))


@router.post("/keys/release")
def release(view: CurrentView) -> Response:
    """Delete the stored result, so that the next caller runs the operation again."""
    name, force = view.form.get("key", ""), bool(view.form.get("force"))
    try:
        because = view.reason()
    except ValueError as error:
        return _render_key(view, name, str(error), 422)
    try:
        view.operator.keys.release(name, because=because, force=force)
    except NotAllowed as error:
        return _render_key(view, name, str(error), 409)
    flash = f"{name} released. The next caller runs the operation again."
    return view.redirect("/keys", flash=flash)


def _render_key(
    view: CurrentView, name: str, error: str | None = None, status: int = 200
) -> Response:
    report = require(view.operator.keys.get(name), f"idempotency record {name} does not exist")
    return view.render(
        "key.html", status=status, report=report, key=report.key, now=report.now, error=error
    )
