"""The Helm chart, rendered by the real Helm: valid objects that fit together, and clear errors for wrong values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from redrive.console.pages.system import router
from redrive.settings import KEYS, settings
from redrive.worker.worker import UNHEALTHY_SECONDS
from tests.acceptance.kubernetes.chart import (
    CHART,
    EXAMPLE,
    PRODUCTION,
    ROOT,
    SMALLEST,
    containers,
    get,
    helm,
    objects,
    pods,
    render_chart,
    template,
)
from tests.unit.cli import typed

pytestmark = pytest.mark.req("X-7")
OLDEST, NEWEST = "1.27", "1.37"
"""Versions of Kubernetes. The chart asks for the oldest one in `kubeVersion`."""
BOTH = pytest.mark.parametrize("files", [SMALLEST, PRODUCTION], ids=["smallest", "production"])

# KEDA's objects are not part of Kubernetes. These are the fields of its documentation that the chart uses.
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
NUMBER = {"type": "integer", "minimum": 0}


def strict(**fields: object) -> dict[str, object]:
    return {"type": "object", "additionalProperties": False, "required": list(fields), "properties": fields}


METADATA = {"name": {"type": "string"}, "labels": TEXTS}
BEHAVIOR = strict(scaleDown=strict(stabilizationWindowSeconds=NUMBER))
KEDA = {
    "TriggerAuthentication": strict(
        apiVersion={"const": "keda.sh/v1alpha1"}, kind={}, metadata=strict(**METADATA),
        spec=strict(secretTargetRef={"type": "array", "items": strict(parameter={}, name={}, key={})}),
    ),
    "ScaledObject": strict(
        apiVersion={"const": "keda.sh/v1alpha1"}, kind={}, metadata=strict(**METADATA),
        spec=strict(
            scaleTargetRef=strict(name={"type": "string"}), minReplicaCount=NUMBER, maxReplicaCount=NUMBER,
            pollingInterval=NUMBER, cooldownPeriod=NUMBER, fallback=strict(failureThreshold=NUMBER, replicas=NUMBER),
            advanced=strict(horizontalPodAutoscalerConfig=strict(behavior=BEHAVIOR)),
            triggers={"type": "array", "items": strict(
                type={"const": "postgresql"}, metricType={"const": "AverageValue"},
                authenticationRef=strict(name={}),
                metadata={**TEXTS, "required": ["host", "port", "userName", "dbName", "sslmode", "query", "targetQueryValue"]},
            )},
        ),
    ),
}  # fmt: skip


@BOTH
def test_the_objects_are_valid_for_kubernetes(files: tuple[Path, ...]) -> None:
    for found in render_chart(*files):
        if found["kind"] in KEDA:
            jsonschema.validate(found, KEDA[found["kind"]])
            continue
        for version in (OLDEST, NEWEST):
            kubernetes_validate.validate(found, version, strict=True)
    assert f'kubeVersion: ">={OLDEST}.0-0"' in (CHART / "Chart.yaml").read_text()
    (secret,) = yaml.safe_load_all((EXAMPLE / "secrets.yaml").read_text())
    kubernetes_validate.validate(secret, NEWEST, strict=True)


@BOTH
def test_the_linter_finds_no_problems(files: tuple[Path, ...]) -> None:
    done = helm("lint", "--strict", CHART, *(option for file in files for option in ("-f", file)))
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


def test_production_has_each_part() -> None:
    kinds = sorted((found["kind"], found["metadata"]["name"].removeprefix("shop-redrive")) for found in render_chart(*PRODUCTION))
    assert kinds == [
        ("ConfigMap", "-grants"),
        ("Deployment", "-console"),
        ("Deployment", "-watch"),
        ("Deployment", "-worker"),
        ("Ingress", "-console"),
        ("Job", "-migrate"),
        ("Pod", "-test"),
        ("PodDisruptionBudget", "-console"),
        ("PodDisruptionBudget", "-worker"),
        ("ScaledObject", "-worker"),
        ("Service", "-console"),
        ("ServiceAccount", ""),
        ("TriggerAuthentication", "-ledger"),
    ]


@BOTH
def test_the_command_and_the_settings_of_each_container_are_valid(files: tuple[Path, ...]) -> None:
    for name, pod in pods(render_chart(*files)):
        for container in containers(pod):
            variables = {each["name"]: each.get("value", "secret-value") for each in container.get("env", ())}
            own = {variable: value for variable, value in variables.items() if variable.startswith("REDRIVE_")}
            assert own.keys() <= {key.variable for key in KEYS} | {"REDRIVE_LEDGER", "REDRIVE_APP"}, name
            settings(own)
            if "args" in container:
                command = f"redrive {' '.join(container['args'])}"
                assert typed.problem(command) is None, f"{name}: {command}"


@BOTH
def test_containers_have_no_rights_and_no_secrets_in_their_text(files: tuple[Path, ...]) -> None:
    found = render_chart(*files)
    assert not any(each["kind"] == "Secret" for each in found)
    for name, pod in pods(found):
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)
        for container in containers(pod):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert container["resources"]["requests"]
            assert "cpu" not in container["resources"]["limits"], "a throttled worker renews its leases late"
            assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]
            for variable in container.get("env", ()):
                is_secret = re.search("PASSWORD|TOKEN|SECRET", variable["name"])
                assert not is_secret or "secretKeyRef" in variable["valueFrom"], variable


@BOTH
def test_objects_refer_to_each_other(files: tuple[Path, ...]) -> None:
    found = render_chart(*files)
    labels = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"] for each in found if each["kind"] == "Deployment"
    }
    for each in found:
        selector: Mapping[str, str] = {}
        if each["kind"] in ("Deployment", "PodDisruptionBudget"):
            selector = each["spec"]["selector"]["matchLabels"]
        elif each["kind"] == "Service":
            selector = each["spec"]["selector"]
        if selector:
            chosen = [name for name, own in labels.items() if selector.items() <= own.items()]
            assert chosen == [each["metadata"]["name"]], each["kind"]
    console = get(found, "Deployment", "shop-redrive-console")["spec"]["template"]["spec"]["containers"][0]
    (port,) = get(found, "Service", "shop-redrive-console")["spec"]["ports"]
    assert port["targetPort"] in {each["name"] for each in console["ports"]}
    for name, pod in pods(found):
        volumes = {volume["name"] for volume in pod["volumes"]}
        for container in containers(pod):
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes, name
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                port_name = container.get(probe, {}).get("httpGet", {}).get("port")
                assert port_name is None or port_name in {each["name"] for each in container["ports"]}


def test_the_secrets_of_the_example_have_every_key_that_is_used() -> None:
    secret = yaml.safe_load((EXAMPLE / "secrets.yaml").read_text())
    used = set()
    for _, pod in pods(render_chart(*PRODUCTION)):
        for container in containers(pod):
            references = [each["valueFrom"]["secretKeyRef"] for each in container.get("env", ()) if "valueFrom" in each]
            used |= {reference["key"] for reference in references if reference["name"] == secret["metadata"]["name"]}
    assert used | {"slack"} == secret["stringData"].keys()


@pytest.mark.parametrize("drain", [0, 30, 3600])
def test_the_grace_period_is_above_the_drain(drain: int) -> None:
    found = tuple(objects(template(*SMALLEST, worker__drain=drain)))
    pod = get(found, "Deployment", "shop-redrive-worker")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == drain + 15
    arguments = pod["containers"][0]["args"]
    assert arguments[arguments.index("--drain") + 1] == str(drain)


def test_a_database_restart_does_not_restart_workers() -> None:
    worker = get(render_chart(*SMALLEST), "Deployment", "shop-redrive-worker")["spec"]["template"]["spec"]["containers"][0]
    liveness = worker["livenessProbe"]
    assert liveness["periodSeconds"] * liveness["failureThreshold"] >= 600 > UNHEALTHY_SECONDS
    console = get(render_chart(*SMALLEST), "Deployment", "shop-redrive-console")["spec"]["template"]["spec"]["containers"][0]
    paths = {route.path for route in router.routes}  # type: ignore[attr-defined]  # all of them are routes of FastAPI
    assert console["livenessProbe"]["httpGet"]["path"] == "/health"
    assert {console[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")} <= paths


def test_the_migration_runs_before_each_install_and_upgrade_as_the_owner() -> None:
    job = get(render_chart(*SMALLEST), "Job", "shop-redrive-migrate")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    pod = job["spec"]["template"]["spec"]
    assert "serviceAccountName" not in pod, "it does not exist before the first install"
    (container,) = pod["containers"]
    assert container["args"] == ["ledger", "migrate"]
    assert container["env"][0]["value"] == "postgresql://redrive_owner@postgres.data.svc:5432/shop"


def test_grants_run_after_the_migration_with_the_sql_of_the_repository() -> None:
    found = render_chart(*PRODUCTION)
    pod = get(found, "Job", "shop-redrive-migrate")["spec"]["template"]["spec"]
    assert [container["name"] for container in containers(pod)] == ["migrate", "grants"]
    sql = get(found, "ConfigMap", "shop-redrive-grants")["data"]["roles.sql"]
    assert sql == (ROOT / "deploy" / "postgres" / "roles.sql").read_text()


def test_autoscaling_leaves_the_number_of_workers_to_keda() -> None:
    found = render_chart(*PRODUCTION)
    worker, scaled = get(found, "Deployment", "shop-redrive-worker"), get(found, "ScaledObject", "shop-redrive-worker")
    assert "replicas" not in worker["spec"]
    assert scaled["spec"]["scaleTargetRef"]["name"] == worker["metadata"]["name"]
    assert scaled["spec"]["minReplicaCount"] <= scaled["spec"]["fallback"]["replicas"] <= scaled["spec"]["maxReplicaCount"]
    trigger = scaled["spec"]["triggers"][0]
    authentication = get(found, "TriggerAuthentication", "shop-redrive-ledger")
    assert trigger["authenticationRef"]["name"] == authentication["metadata"]["name"]
    assert (trigger["metadata"]["host"], trigger["metadata"]["port"]) == ("postgres.data.svc", "5432")


def test_the_watcher_reads_its_urls_from_files() -> None:
    pod = get(render_chart(*PRODUCTION), "Deployment", "shop-redrive-watch")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables["REDRIVE_ALERTS_SLACK_FILE"] == "/alerts/slack"
    assert {"name": "alerts", "secret": {"secretName": "redrive", "defaultMode": 0o440}} in pod["volumes"]
    assert {"name": "alerts", "mountPath": "/alerts", "readOnly": True} in container["volumeMounts"]


def test_an_address_may_have_ports_and_several_hosts() -> None:
    found = tuple(objects(template(*SMALLEST, ledger__host="pg-1:5432,pg-2:5433", ledger__parameters="sslmode=require")))
    pod = get(found, "Deployment", "shop-redrive-worker")["spec"]["template"]["spec"]
    assert pod["containers"][0]["env"][1]["value"] == "postgresql://worker@pg-1:5432,pg-2:5433/shop?sslmode=require"


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"worker__replica": 3}, "worker: Additional property replica is not allowed"),
        ({"wroker__replicas": 3}, "(root): Additional property wroker is not allowed"),
        ({"worker__threads": "many"}, "worker.threads: Invalid type"),
        ({"worker__drain": -1}, "worker.drain: Must be greater than or equal to 0"),
        ({"app": "shop"}, "app: Does not match pattern"),
        ({"ledger__host": ""}, "ledger.host: Does not match pattern"),
        ({"ledger__host": "postgresql://db/shop"}, "ledger.host: Does not match pattern"),
        ({"ledger__parameters": "password=hunter2"}, "ledger.parameters: Must not validate the schema (not)"),
        ({"image__tag": ""}, "image.tag: set the tag or the digest of your image"),
        ({"image__digest": "sha256:1"}, "image.digest: Does not match pattern"),
        ({"console__existingSecret": ""}, "console.existingSecret: set the secret with the password of operators"),
        ({"console__replicas": 2}, "console.sessionSecretKey: required for more than one replica"),
        ({"console__passwordKey": ""}, "console.passwordKey: the console needs a password or a token"),
        ({"console__ingress__enabled": True}, "console.ingress.host: set the name of the console"),
        ({"watch__enabled": True}, "watch.existingSecret: set the secret with the URLs of the targets"),
        ({"watch__enabled": True, "watch__existingSecret": "a"}, "watch.slackKey: no target; set slackKey or webhookKey"),
        ({"watch__interval": 1}, "watch.interval: Must be greater than or equal to 5"),
        ({"autoscaling__enabled": True, "autoscaling__minReplicas": 99}, "autoscaling.minReplicas: 99 is more than maxReplicas"),
        ({"autoscaling__enabled": True, "ledger__host": "a:1,b:2"}, "autoscaling: KEDA takes one host"),
        ({"autoscaling__schema": "x; DROP TABLE y"}, "autoscaling.schema: Does not match pattern"),
    ],
    ids=lambda each: each if isinstance(each, str) else None,
)  # fmt: skip
def test_a_wrong_value_is_an_error_when_the_chart_is_rendered(values: dict[str, object], problem: str) -> None:
    done = template(*SMALLEST, **values)
    assert (done.returncode, done.stdout) == (1, "")
    assert problem in done.stderr


def test_the_values_without_an_app_are_an_error_that_names_each() -> None:
    done = template()
    for name in ("app", "image.repository", "ledger.host", "ledger.database", "ledger.existingSecret"):
        assert f"- {name}: " in done.stderr


def test_the_page_shows_the_files_of_the_example() -> None:
    page = (ROOT / "docs" / "how-to" / "operate" / "kubernetes.md").read_text()
    values, secret, scaling = (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL))
    assert values == yaml.safe_load((EXAMPLE / "values.yaml").read_text())
    assert secret == yaml.safe_load((EXAMPLE / "secrets.yaml").read_text())
    production = yaml.safe_load((EXAMPLE / "values-production.yaml").read_text())
    assert scaling["autoscaling"] == production["autoscaling"]
    named = set(re.findall(r"`(?:worker|console|watch|ledger|image|autoscaling|migration)\.[\w.]*\w`", page))
    known = set(leaves(yaml.safe_load((CHART / "values.yaml").read_text())))
    assert {name.strip("`") for name in named} <= known | {"ledger.owner", "ledger.worker", "ledger.console"}


def leaves(values: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{path}{name}.")
        else:
            yield path + name


def list_properties(schema: Mapping[str, Any], definitions: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for name, own in schema["properties"].items():
        resolved = definitions[own["$ref"].rpartition("/")[2]] if "$ref" in own else own
        if "properties" in resolved:
            yield from list_properties(resolved, definitions, f"{path}{name}.")
        else:
            yield path + name


def test_values_and_schema_have_the_same_names() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    names = {re.sub(r"(resources\.(requests|limits)).*", r"\1", name) for name in leaves(values)}
    unused = {"global"} | {name for name in list_properties(schema, schema["definitions"]) if name.endswith("resources.claims")}
    assert names == set(list_properties(schema, schema["definitions"])) - unused
