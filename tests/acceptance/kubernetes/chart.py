"""Renders the Helm chart with the real Helm, and finds objects in the result."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy" / "helm" / "redrive"
EXAMPLE = ROOT / "examples" / "k8s"
SMALLEST = (EXAMPLE / "values.yaml",)
PRODUCTION = (EXAMPLE / "values.yaml", EXAMPLE / "values-production.yaml")


def helm(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run Helm, without a cluster."""
    command = [str(Path(sys.executable).parent / "helm"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def template(*files: Path, **values: object) -> subprocess.CompletedProcess[str]:
    """Render the chart as release `shop`. A double underscore in the name of a value is a dot."""
    options: list[object] = [option for file in files for option in ("-f", file)]
    for name, value in values.items():
        options += ["--set-json", f"{name.replace('__', '.')}={json.dumps(value)}"]
    return helm("template", "shop", CHART, "--namespace", "shop", *options)


@cache
def render_chart(*files: Path) -> tuple[dict[str, Any], ...]:
    """Return the objects of the chart with these files of values."""
    return tuple(objects(template(*files)))


def objects(done: subprocess.CompletedProcess[str]) -> Iterator[dict[str, Any]]:
    """Yield the objects that Helm printed."""
    assert done.returncode == 0, done.stderr
    for document in yaml.safe_load_all(done.stdout):
        if document is not None:
            yield document


def get(found: tuple[dict[str, Any], ...], kind: str, name: str) -> dict[str, Any]:
    """Return one object."""
    (match,) = [each for each in found if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return match


def pods(found: tuple[dict[str, Any], ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the specification of each pod."""
    for each in found:
        if each["kind"] in ("Deployment", "Job"):
            yield each["metadata"]["name"], each["spec"]["template"]["spec"]
        elif each["kind"] == "Pod":
            yield each["metadata"]["name"], each["spec"]


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the containers of a pod, those of its initialisation first."""
    return [*pod.get("initContainers", ()), *pod["containers"]]
