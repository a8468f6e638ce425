"""The links of the README work in the repository, and on the page of a package index."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TARGET = re.compile(r"\]\(([^)\s]+)\)")
REPOSITORY = "https://git.example/redrive"


def relative(text: str) -> list[str]:
    return [target for target in TARGET.findall(text) if "://" not in target and not target.startswith("#")]


@pytest.mark.parametrize("target", sorted(set(relative(README))))
def test_a_relative_link_names_a_file(target: str) -> None:
    assert (ROOT / target.partition("#")[0]).is_file()


def test_the_build_leaves_links_relative_without_a_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDRIVE_REPOSITORY", raising=False)
    assert readme_of(ROOT) == README


def test_the_build_makes_links_absolute_with_a_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_REPOSITORY", REPOSITORY)
    shown = readme_of(ROOT)
    assert relative(shown) == []
    assert f"]({REPOSITORY}/blob/v0.1.0/docs/tutorial/index.md)" in shown
    assert f"]({REPOSITORY}/raw/v0.1.0/docs/pictures/overview.png)" in shown


def test_links_in_code_stay_as_they_are() -> None:
    make_absolute = runpy.run_path(str(ROOT / "scripts" / "package_metadata.py"))["make_absolute"]
    code = "```python\nhandlers[0](event)\n```\n"
    assert make_absolute(f"{code}[a](b.md) [c](#d) [e](https://f.example)\n{code}", REPOSITORY, "1.2") == (
        f"{code}[a]({REPOSITORY}/blob/v1.2/b.md) [c](#d) [e](https://f.example)\n{code}"
    )


def readme_of(root: Path) -> str:
    """The text that a package index would show."""
    from hatchling.metadata.core import ProjectMetadata
    from hatchling.plugin.manager import PluginManager

    return str(ProjectMetadata(str(root), PluginManager()).core.readme)
