"""Fill in the metadata of the package that depend on its repository: the addresses, and absolute links in README.md.

A package index shows the README without its repository, so relative links and pictures do not work there.

The environment variable REDRIVE_REPOSITORY has the address, such as https://git.example/owner/redrive. `make release` sets it.
Without it, the package has no addresses and its links stay relative. Such a package must not be published: see release.py.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

VARIABLE = "REDRIVE_REPOSITORY"
ADDRESS = re.compile(r"https://[\w.-]+(?::\d+)?(?:/[\w.~-]+)+")
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
RELATIVE = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<target>(?![a-z]+:|#|/)[^)\s]+)\)")


def repository_address(text: str) -> str:
    """Return the address of the repository, checked and without a final slash.

    Raises:
        ValueError: It is not an address that an index can show.
    """
    address = text.rstrip("/").removesuffix(".git")
    if ADDRESS.fullmatch(address) is None:
        raise ValueError(f"{VARIABLE}: not an https address without user and query; use https://git.example/owner/redrive")
    return address


def project_urls(repository: str, version: str) -> dict[str, str]:
    """Return the addresses of this version for the index."""
    return {
        "Repository": repository,
        "Documentation": f"{repository}/blob/v{version}/docs/index.md",
        "Changelog": f"{repository}/blob/v{version}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }


def make_absolute(text: str, repository: str, version: str) -> str:
    """Point relative links of a Markdown page at the files of this version in the repository."""

    def replace(link: re.Match[str]) -> str:
        view = "raw" if link["picture"] else "blob"
        return f"{link['picture']}[{link['text']}]({repository}/{view}/v{version}/{link['target']})"

    parts: list[str] = []
    position = 0
    for code in FENCED.finditer(text):
        parts += [RELATIVE.sub(replace, text[position : code.start()]), code.group()]
        position = code.end()
    return "".join([*parts, RELATIVE.sub(replace, text[position:])])


class CustomMetadataHook(MetadataHookInterface):
    """Hatchling calls it for every build. The build of a source distribution takes the fields from its PKG-INFO."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the fields `readme` and `urls`."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["urls"] = {}
        if address := os.environ.get(VARIABLE):
            repository = repository_address(address)
            text = make_absolute(text, repository, metadata["version"])
            metadata["urls"] = project_urls(repository, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
