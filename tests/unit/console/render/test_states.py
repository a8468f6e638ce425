"""Every state has an icon and a tone."""

from __future__ import annotations

from redrive.console.render.fragments import ICONS, icon, tone


def test_every_state_has_an_icon_and_a_tone() -> None:
    assert {tone(state) for state in ICONS} <= {"good", "info", "calm", "warn", "bad"}
    assert all(icon(state) for state in ICONS)


def test_an_unknown_state_has_a_neutral_icon() -> None:
    assert (icon("unheard"), tone("unheard")) == ("·", "calm")
