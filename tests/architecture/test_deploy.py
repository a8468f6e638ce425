"""The files in deploy/: exported metrics and labels, valid systemd units, and images with pinned versions."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from redrive.cli.root import COMMANDS
from redrive.journal.metrics import CATALOGUE
from redrive.settings import KEYS

DEPLOY = Path(__file__).parents[2] / "deploy"
METRICS = {metric.name: set(metric.labels) for metric in CATALOGUE}
METRICS |= {f"{one.name}_bucket": {*one.labels, "le"} for one in CATALOGUE if one.kind == "histogram"}
SELECTOR = re.compile(r"(redrive_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'\s*(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"\s*(?:,|$)')
GROUPING = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")
OUTCOMES = {
    "outcome": {"success", "recovered", "retry", "giveup", "again", "blocked", "acknowledged", "given_up", "pending"},
    "layer": {"call", "job", "partition"},
    "state": {"waiting", "running", "dead", "alive", "silent"},
}


def board() -> Any:
    return json.loads((DEPLOY / "grafana" / "redrive.json").read_text())


def rules() -> list[Any]:
    groups = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> Iterator[tuple[str, str]]:
    for rule in rules():
        yield f"alert {rule['alert']}", rule["expr"]
    for panel in board()["panels"]:
        for target in panel.get("targets", ()):
            yield f"panel {panel['title']}", target["expr"]


@pytest.mark.req("J-3")
@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_dashboards_use_only_exported_metrics_and_labels(where: str, expression: str) -> None:
    used = SELECTOR.findall(expression)
    assert used, f"{where} is about nothing of ours"
    labels: set[str] = set()
    for name, matchers in used:
        assert name in METRICS, f"{where}: there is no metric {name}"
        labels |= METRICS[name]
        for label, _, value in MATCHER.findall(matchers):
            assert label in METRICS[name], f"{where}: {name} has no label {label}"
            known = OUTCOMES.get(label)
            assert known is None or value.startswith("$") or set(value.split("|")) <= known, f"{where}: {label}={value}"
        assert MATCHER.sub("", matchers).strip() == "", f"{where}: {matchers} cannot be read"
    for names in GROUPING.findall(expression):
        wrong = {name.strip() for name in names.split(",")} - labels
        assert not wrong, f"{where}: grouped by {wrong}"
    assert expression.count("(") == expression.count(")")


def test_every_metric_is_in_a_dashboard() -> None:
    shown = {name for _, expression in expressions() for name, _ in SELECTOR.findall(expression)}
    missing = {metric.name for metric in CATALOGUE} - {re.sub("_(bucket|sum|count)$", "", name) for name in shown}
    assert not missing


def test_legends_and_messages_name_grouped_labels() -> None:
    for panel in board()["panels"]:
        for target in panel.get("targets", ()):
            by = {name.strip() for names in GROUPING.findall(target["expr"]) for name in names.split(",")}
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= by, panel["title"]
    for rule in rules():
        by = {name.strip() for names in GROUPING.findall(rule["expr"]) for name in names.split(",")}
        said = " ".join(rule["annotations"].values())
        assert set(re.findall(r"\$labels\.(\w+)", said)) <= by, rule["alert"]
        assert rule["annotations"].keys() == {"summary", "description"}
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        commands = re.findall(r"`redrive (\w+)", said)
        assert set(commands) <= COMMANDS.keys(), rule["alert"]


def test_the_dashboard_can_be_imported() -> None:
    found = board()
    ids = [panel["id"] for panel in found["panels"]]
    assert len(set(ids)) == len(ids)
    assert {variable["name"] for variable in found["templating"]["list"]} == {"datasource", "kind", "operation"}
    for panel in found["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        assert panel["type"] in ("row", "stat", "timeseries")


# ---- systemd ----


@pytest.mark.parametrize("unit", sorted(path.name for path in (DEPLOY / "systemd").iterdir()))
def test_units_are_valid_for_systemd(unit: str, tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / unit).read_text()
    assert re.search(r"^ExecStart=\S+/redrive (work|serve)$", text, re.MULTILINE)
    stop = re.search(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
    drain = next(key.default for key in KEYS if key.name == "worker.drain")
    assert stop is not None
    assert "worker" not in unit or int(stop[1]) > drain
    assert {f"REDRIVE_{name}" for name in re.findall(r"^Environment=REDRIVE_(\w+)", text, re.MULTILINE)} <= {
        key.variable for key in KEYS
    }
    if shutil.which("systemd-analyze") is None:
        return
    there = tmp_path / unit.replace("@", "@1")  # verified as an instance, with an existing program
    there.write_text(re.sub(r"^ExecStart=\S+", f'ExecStart="{sys.executable}"', text, flags=re.MULTILINE))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(there)], capture_output=True, text=True
    )
    said = [line for line in done.stderr.splitlines() if there.name in line]
    assert not said


HARDENED = {
    "CapabilityBoundingSet": "", "NoNewPrivileges": "yes", "PrivateDevices": "yes", "PrivateTmp": "yes", "ProtectHome": "yes",
    "ProtectKernelModules": "yes", "ProtectSystem": "strict", "RestrictNamespaces": "yes", "RestrictSUIDSGID": "yes",
    "SystemCallArchitectures": "native", "UMask": "0077",
}  # fmt: skip


@pytest.mark.parametrize("unit", sorted(path.name for path in (DEPLOY / "systemd").iterdir()))
def test_units_are_hardened(unit: str) -> None:
    path = DEPLOY / "systemd" / unit
    lines = dict(line.partition("=")[::2] for line in path.read_text().splitlines() if "=" in line and line[0] not in "#[")
    assert lines | HARDENED == lines
    if shutil.which("systemd-analyze") is None:
        return
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert exposure is not None
    assert float(exposure[1]) <= 4


# ---- images ----


def instructions() -> list[tuple[str, str]]:
    text = (DEPLOY / "docker" / "Dockerfile").read_text()
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines.splitlines() if line.strip())]


def test_the_image_has_pinned_versions_and_no_root() -> None:
    found = instructions()
    words = [word for word, _ in found]
    known = "FROM WORKDIR COPY RUN ENV USER EXPOSE STOPSIGNAL HEALTHCHECK ENTRYPOINT CMD".split()
    assert set(words) <= set(known)
    assert words[0] == "FROM"
    for word, rest in found:
        if word == "FROM":
            assert re.fullmatch(r"[a-z]+:[\w.-]+( AS \w+)?", rest), "an image by its name and version, of no host"
            assert ":latest" not in rest
        if word == "RUN":
            assert "sudo" not in rest
            assert "pip install" not in rest or "--no-cache-dir" in rest
        if word in ("ENTRYPOINT", "CMD"):
            assert isinstance(json.loads(rest), list), "as a list: a shell would not hand signals on"
        if word == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                assert (DEPLOY.parent / source).exists(), f"COPY {source}: there is none"
    assert words.index("USER") < words.index("ENTRYPOINT")
    assert [rest for word, rest in found if word == "USER"] == ["10001"]
    assert [rest for word, rest in found if word == "STOPSIGNAL"] == ["SIGTERM"]
    for word, rest in found:
        if word == "ENV":
            assert set(re.findall(r"(REDRIVE_\w+)=", rest)) <= {key.variable for key in KEYS}
    assert "--require-hashes" in str(found)


PIN = re.compile(r"^([\w.-]+)==(\S+)(?: ; ([^\\\n]+?))?(?: \\)?$", re.MULTILINE)


def pins(name: str) -> set[tuple[str, ...]]:
    return {tuple(part.strip() for part in pin) for pin in PIN.findall((DEPLOY.parent / name).read_text())}


@pytest.mark.req("X-5")
@pytest.mark.parametrize("name", ["hashes.txt", "deploy/docker/requirements.txt"])
def test_every_pinned_version_has_hashes(name: str) -> None:
    pinned, text = pins("constraints.txt"), (DEPLOY.parent / name).read_text()
    assert pins(name) == pinned if name == "hashes.txt" else {pin[:2] for pin in pins(name)} < {pin[:2] for pin in pinned}
    entries = re.split(r"\n(?=[^\s#])", text.partition("\n")[2].strip())
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries)
    assert "http" not in re.sub(r"^[\w.-]+==", "", text, flags=re.MULTILINE)


def test_hadolint_finds_no_problems() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([hadolint, "--no-color", DEPLOY / "docker" / "Dockerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_compose_file_is_consistent() -> None:
    found = yaml.safe_load((DEPLOY / "docker" / "compose.yaml").read_text())
    services = found["services"]
    for name, service in services.items():
        image = service["image"]
        assert re.fullmatch(r"redrive|[a-z/]+:v?[\d.]+", image), f"{name}: {image}"
        assert set(service.get("depends_on", {})) <= services.keys()
        for secret in service.get("secrets", ()):
            assert secret in found["secrets"], f"{name}: {secret}"
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert source in found["volumes"] or source == "./app" or (DEPLOY / "docker" / source).exists(), f"{name}: {volume}"
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), f"{name} is open to everybody"
        mine = {variable for variable in service.get("environment", {}) if variable.startswith("REDRIVE_")}
        assert mine <= {key.variable for key in KEYS}
        assert service["cap_drop"] == ["ALL"], name
        assert service["read_only"] is True, name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        for variable, value in service.get("environment", {}).items():
            assert "PASSWORD" not in variable or variable.endswith("_FILE"), f"{name}: {variable}={value}"
        if image == "redrive":
            assert service["command"][0] in COMMANDS | {"serve": None}, name
            dockerfile = (DEPLOY / "docker" / service["build"]["context"] / service["build"]["dockerfile"]).resolve()
            assert dockerfile == (DEPLOY / "docker" / "Dockerfile")
    superuser = services["ledger"]["environment"]["POSTGRES_USER"]
    addresses = [one.get("environment", {}).get("REDRIVE_LEDGER", "") for one in services.values()]
    assert not any(f"//{superuser}@" in address for address in addresses), "no program logs in as the superuser"
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    assert all((DEPLOY / "prometheus" / name).exists() for name in scraped["rule_files"])


def test_deploy_files_have_no_local_paths_hosts_or_secrets() -> None:
    for path in DEPLOY.rglob("*"):
        if path.is_file():
            text = path.read_text()
            assert not re.search(r"/(home|root|work|Users)/", text), path
            assert not re.search(r"https?://(?!127\.0\.0\.1|\$)", text), path
            assert not re.search(r"(?i)password\s*[:=]\s*['\"]?[a-z0-9]{6,}", text), path
