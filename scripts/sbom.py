"""Write the software bill of materials of Redrive with all extras: `make sbom`.

    python scripts/sbom.py             # writes dist/redrive-0.1.0.cdx.json

cyclonedx-bom describes every package of this environment, which also has the tools. The bill lists only packages that
`pip install "redrive[all]"` installs, at the versions of constraints.txt. It is the same for the same environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation import make_schemabased_validator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
ROOT_COMPONENT = "root-component"
"""The reference of Redrive in the bill, as cyclonedx-bom writes it."""
SPEC = "1.6"


def main() -> int:
    bill = restrict(describe_environment(), requirements_of("redrive", "all"))
    text = json.dumps(bill, indent=2, sort_keys=True) + "\n"
    problem = find_problem(text)
    if problem is not None:
        print(f"sbom: not a valid CycloneDX document; check scripts/sbom.py ({problem}). Nothing was written.", file=sys.stderr)
        return 1
    path = ROOT / "dist" / f"redrive-{bill['metadata']['component']['version']}.cdx.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(f"{path.relative_to(ROOT)}: {len(bill['components'])} packages")
    return 0


def find_problem(text: str) -> str | None:
    """Return how a document violates the schema of CycloneDX. None: it is valid."""
    error = make_schemabased_validator(OutputFormat.JSON, SchemaVersion.from_version(SPEC)).validate_str(text)
    return None if error is None else str(error)


def requirements_of(name: str, *extras: str) -> dict[str, set[str]]:
    """Return the packages that an installation of this package brings, each with the packages that it requires."""
    graph: dict[str, set[str]] = {}
    seen: set[tuple[str, str]] = set()
    pending = [(canonicalize_name(name), extra) for extra in ("", *extras)]
    while pending:
        current = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        package, extra = current
        required = graph.setdefault(package, set())
        for text in distribution(package).requires or ():
            requirement = Requirement(text)
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
                continue
            target = canonicalize_name(requirement.name)
            if target != package:  # `all` names the other extras of its own package
                required.add(target)
            pending += [(target, each) for each in ("", *requirement.extras)]
    return graph


def describe_environment() -> dict[str, Any]:
    """Return the bill of everything that is installed here."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "environment.json"
        options = f"--sv {SPEC} --of JSON --mc-type library --output-reproducible --no-validate".split()
        command = [sys.executable, "-m", "cyclonedx_py", "environment", *options, "--pyproject", "pyproject.toml"]
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        subprocess.run([*command, "--output-file", str(target), sys.executable], cwd=ROOT, env=clean, check=True)
        bill: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
        return bill


def restrict(bill: dict[str, Any], graph: dict[str, set[str]]) -> dict[str, Any]:
    """Return the bill without the packages that are not in the graph."""
    components = [each for each in bill["components"] if canonicalize_name(each["name"]) in graph.keys() - {"redrive"}]
    references = {canonicalize_name(each["name"]): each["bom-ref"] for each in components} | {"redrive": ROOT_COMPONENT}
    missing = sorted(graph.keys() - references.keys())
    if missing:
        raise SystemExit(f"sbom: {', '.join(missing)} is not described; run make install, then retry")
    main = bill["metadata"]["component"]
    main["purl"] = f"pkg:pypi/{main['name']}@{main['version']}"
    dependencies = [
        {"ref": references[name], "dependsOn": sorted(references[each] for each in required)}
        for name, required in sorted(graph.items())
    ]
    return bill | {"components": components, "dependencies": dependencies}


if __name__ == "__main__":
    sys.exit(main())
