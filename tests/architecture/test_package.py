"""The package metadata, and the extras that messages name."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import version

import pytest

import redrive
from redrive.core.lazy import EXTRAS
from tests.architecture.imports import SRC

PROJECT = tomllib.loads((SRC.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NAMED = re.compile(r"redrive\[([a-z0-9,-]+)\]")


def test_the_description_is_the_first_sentence_of_the_readme() -> None:
    readme = (SRC.parent / "README.md").read_text(encoding="utf-8")
    assert readme.split("\n\n")[1] == PROJECT["description"]


def test_classifiers_name_every_version_of_python_that_is_supported() -> None:
    named = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", text)]
    assert named == ["3.11", "3.12", "3.13", "3.14"]
    assert PROJECT["requires-python"] == f">={named[0]}"


@pytest.mark.req("X-5")
def test_the_version_is_the_same_without_metadata() -> None:
    assert PROJECT["version"] == redrive.__version__ == version("redrive")


@pytest.mark.req("X-5")
def test_every_library_of_an_extra_has_a_lower_bound() -> None:
    """`make lowest` tests with these versions."""
    libraries = {text for texts in PROJECT["optional-dependencies"].values() for text in texts if not text.startswith("redrive[")}
    assert [text for text in libraries if not re.fullmatch(r"[a-z0-9-]+(\[binary\])?>=[0-9.]+", text)] == []


def test_an_index_accepts_the_metadata() -> None:
    """Hatchling rejects unknown classifiers and a licence that is not an SPDX expression."""
    from hatchling.metadata.core import ProjectMetadata
    from hatchling.plugin.manager import PluginManager

    metadata = ProjectMetadata(str(SRC.parent), PluginManager())
    metadata.validate_fields()
    assert (metadata.core.license_expression, metadata.core.license_files) == ("MIT", ["LICENSE"])
    assert metadata.core.readme_content_type == "text/markdown"


def test_messages_name_extras_that_exist() -> None:
    named = set(EXTRAS.values())
    for file in SRC.rglob("*.py"):
        for extras in NAMED.findall(file.read_text(encoding="utf-8")):
            named.update(extras.split(","))
    assert len(named) > 5
    assert named <= set(PROJECT["optional-dependencies"])


def test_pip_reads_extras_from_the_installed_package() -> None:
    pytest.importorskip("pip")
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--dry-run", "--disable-pip-version-check", "redrive[cli]"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Requirement already satisfied: redrive[cli]" in done.stdout
    assert re.search(r"typer.* \(from redrive\[cli\]\)", done.stdout)
