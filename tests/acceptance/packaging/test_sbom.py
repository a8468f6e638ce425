"""The bill of materials: the packages that an installation with all extras brings, and no tools."""

from __future__ import annotations

import json
import tomllib
from importlib.metadata import version
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts import sbom

pytestmark = pytest.mark.req("X-5")

ROOT_COMPONENT = "root-component"


@pytest.fixture(scope="module")
def environment() -> dict[str, Any]:
    return sbom.describe_environment()


def names(bill: dict[str, Any]) -> set[str]:
    return {canonicalize_name(each["name"]) for each in bill["components"]}


def test_the_bill_lists_the_extras_and_what_they_require(environment: dict[str, Any]) -> None:
    bill = sbom.restrict(environment, sbom.requirements_of("redrive", "all"))
    project = tomllib.loads((sbom.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {Requirement(text).name for texts in project["optional-dependencies"].values() for text in texts} - {"redrive"}
    listed = names(bill)
    assert {canonicalize_name(name) for name in extras} <= listed
    assert {"mako", "psycopg-binary", "pydantic-core"} <= listed, "also what the libraries require"
    assert listed.isdisjoint({"redrive", "pytest", "mypy", "hatchling", "cyclonedx-bom", "django", "httpx"})
    main = bill["metadata"]["component"]
    assert (main["name"], main["version"], main["purl"]) == (
        "redrive",
        project["version"],
        f"pkg:pypi/redrive@{project['version']}",
    )
    assert main["licenses"][0]["license"]["id"] == "MIT"
    for each in bill["components"]:
        assert each["purl"].partition("?")[0] == f"pkg:pypi/{canonicalize_name(each['name'])}@{each['version']}"
        assert each["version"] == version(each["name"])
    graph = {each["ref"]: set(each["dependsOn"]) for each in bill["dependencies"]}
    references = {each["bom-ref"] for each in bill["components"]}
    assert graph.keys() == references | {ROOT_COMPONENT}
    assert set().union(*graph.values()) == references, "each package is there because another requires it"


def test_the_bill_is_valid_and_reproducible(environment: dict[str, Any]) -> None:
    """Of a small extra, because the validation takes 0.2 s for each package."""
    graph = sbom.requirements_of("redrive", "structlog")
    bill = sbom.restrict(environment, graph)
    assert names(bill) == graph.keys() - {"redrive"}
    assert sbom.find_problem(json.dumps(bill)) is None
    assert "timestamp" not in bill["metadata"]
    assert "serialNumber" not in bill
    nameless = {key: value for key, value in bill["components"][0].items() if key != "name"}
    assert sbom.find_problem(json.dumps(bill | {"components": [nameless]})) is not None


def test_a_package_that_is_not_installed_is_an_error(environment: dict[str, Any]) -> None:
    with pytest.raises(SystemExit, match="sbom: teapot is not described; run make install"):
        sbom.restrict(environment, {"redrive": {"teapot"}, "teapot": set()})
