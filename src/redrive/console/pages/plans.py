"""The confirmation of a plan: check what the operator has entered, and start a bulk operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import Response

from ...errors import Drift
from ...ops.plans.plan import Plan
from ..view import View

NUMBER_FIELDS: dict[str, tuple[str, Callable[[str], float | None]]] = {
    "rate": ("rate", float),
    "canary": ("canary size", int),
    "max_replays": ("maximum of replays", lambda text: int(text) or None),
}
"""Label and reader of the numbers in the form. 0 replays mean no limit."""


def confirm_plan(
    view: View,
    plan: Plan,
    render: Callable[[View, Plan, str, int], Response],
    /,
    *,
    must_type: bool,
    numbers: Sequence[str],
    **options: Any,
) -> Response:
    """Start a plan, if it has not changed and the form is complete. Otherwise show it again.

    Args:
        view: The request with the form.
        plan: The plan, made again from the form.
        render: Shows the plan with an error.
        must_type: Whether the operator has to type the number of items.
        numbers: Names of the numbers that the form may contain.
        options: Further options of the bulk operation.
    """
    try:
        because = view.reason()
        if must_type:
            view.check_typed(plan.count)
        options |= _read_numbers(view, numbers)
        sweep = view.operator.begin(plan, because=because, seen=view.field("seen"), **options)
    except (ValueError, Drift) as error:
        return render(view, plan, str(error), 409 if isinstance(error, Drift) else 422)
    # Carry out the first step here: small operations end at once, and workers continue large ones.
    next(iter(view.operator.carry_out(sweep.id)), None)
    return view.redirect(f"/sweeps/{sweep.id}")


def _read_numbers(view: View, names: Sequence[str]) -> dict[str, float | None]:
    numbers = {}
    for name in names:
        label, read = NUMBER_FIELDS[name]
        text = view.field(name)
        if text:
            try:
                numbers[name] = read(text)
            except ValueError:
                raise ValueError(
                    f"invalid {label} {text!r}: use a number; nothing was changed"
                ) from None
    return numbers
