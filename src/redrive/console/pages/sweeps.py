"""Sweeps: what is done to many dead letters at once: how far it is, what became of each; pause, resume, cancel."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ...errors import NotAllowed
from ..problem import missing
from ..view import Here, Id, View

router = APIRouter()
MOVES = {"running": ("pause", "cancel"), "paused": ("resume", "cancel"), "halted": ("resume", "cancel")}
"""What may be done to one, by its state."""
PAGE = 100
OF_LETTERS = ("replay", "discard")
"""What is done to dead letters; the other sweeps are over partitions."""


@router.get("/sweeps")
def sweeps(view: Here) -> Response:
    """The list."""
    limit = view.number("limit", 50, most=500)
    found = view.ops.sweeps(limit=limit)
    nobody = view.ops.nobody() if any(one.state == "running" for one in found) else None
    return view.page("sweeps.html", found=found, limit=limit, now=view.ops.now(), nobody=nobody)


@router.get("/sweeps/{number}")
def sweep(view: Here, number: Id) -> Response:
    """One of them."""
    return _shown(view, number)


@router.post("/sweeps/{number}/{verb}")
def move(view: Here, number: Id, verb: str) -> Response:
    """Pause, resume or cancel it."""
    moves = {"pause": view.ops.pause, "resume": view.ops.resume, "cancel": view.ops.cancel}
    if verb not in moves:
        raise missing(f"A sweep can be paused, resumed or cancelled; there is no {verb}.")
    try:
        moves[verb](number, because=view.form.get("because", ""))
    except NotAllowed as refused:
        return _shown(view, number, str(refused), 409)
    except ValueError:
        return _shown(view, number, "Say why: the audit will have it. Nothing was done.", 422)
    return view.to(f"/sweeps/{number}")


def _shown(view: View, number: int, said: str | None = None, status: int = 200) -> Response:
    after = view.number("after", 0) - 1
    report = view.ops.sweep(number, after=after, limit=PAGE)
    if report is None:
        raise missing(f"There is no sweep {number}.")
    far = None if report.sweep.act in OF_LETTERS else view.ops.partitions.progress(number)
    nobody = view.ops.nobody() if report.sweep.state == "running" else None
    return view.page(
        "sweep.html", code=status, far=far, nobody=nobody, report=report, one=report.sweep, now=report.now, said=said,
        after=after, page=PAGE, moves=MOVES.get(report.sweep.state, ()),
    )  # fmt: skip
