"""Make the links of README.md absolute when the package is built.

A package index shows the README without its repository, so relative links and pictures do not work there. The address
comes from `Repository` under `[project.urls]` in pyproject.toml. Without it, the links stay relative.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
RELATIVE = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<target>(?![a-z]+:|#|/)[^)\s]+)\)")


def make_absolute(text: str, repository: str, version: str) -> str:
    """Point relative links of a Markdown page at the files of this version in the repository."""
    root = repository.rstrip("/")

    def replace(link: re.Match[str]) -> str:
        view = "raw" if link["picture"] else "blob"
        return f"{link['picture']}[{link['text']}]({root}/{view}/v{version}/{link['target']})"

    parts: list[str] = []
    position = 0
    for code in FENCED.finditer(text):
        parts += [RELATIVE.sub(replace, text[position : code.start()]), code.group()]
        position = code.end()
    return "".join([*parts, RELATIVE.sub(replace, text[position:])])


class CustomMetadataHook(MetadataHookInterface):
    """Hatchling calls it for every build."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the field `readme`."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        repository = metadata.get("urls", {}).get("Repository")
        if repository:
            text = make_absolute(text, repository, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
