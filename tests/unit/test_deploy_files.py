"""The files of deploy/, checked as far as that goes without running them: each against the schema of the program that
reads it, and all against Weft: flags, variables, settings and metrics that they name are there."""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import jsonschema_rs
import pytest
import yaml

from weft.cli.main import COMMANDS, LazyGroup, weft
from weft.config import load
from weft.config.keys import keys, own_names
from weft.config.sources import IN_SECRET_FILES, SWITCHES
from weft.config.tree import PRODUCTS
from weft.system.compose import ComposePlan

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SCHEMAS = ROOT / "tests/shared/schemas"
MANIFESTS = [path for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")) if "values" not in path.name]
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
COMPOSE = sorted(DEPLOY.glob("compose.*.yaml"))


def program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/bin")
    if found is None:
        assert not os.environ.get("WEFT_REQUIRE_TOOLS"), f"{name} is missing and this run requires it"
        pytest.skip(f"{name} is not here: `make test` fetches it, if it can be had")
    return found


# ── against the schemas of those who read them ─────────────────────────────────────────────────────────────────────


@functools.cache
def schema(name: str) -> Any:
    return json.loads((SCHEMAS / f"{name}.json").read_text())


@functools.cache
def validator(kind: str) -> Any:
    if kind in ("compose", "pod-monitor"):
        return jsonschema_rs.validator_for(schema(kind))
    known = schema("kubernetes")
    whole = {"$ref": f"#/definitions/{known['kinds'][kind]}", "definitions": known["definitions"]}
    return jsonschema_rs.validator_for(whole)


def mistakes(kind: str, document: Any) -> list[str]:
    return [f"{list(error.instance_path)}: {error.message}" for error in validator(kind).iter_errors(document)]


def documents(path: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(path.read_text()) if one]


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.name)
def test_compose_files_are_as_the_compose_specification_wants_them(path: Path) -> None:
    (document,) = documents(path)
    assert mistakes("compose", document) == []


@pytest.mark.parametrize("plan", [ComposePlan(pods=1), ComposePlan(), ComposePlan(pods=256, with_monitoring=False)])
def test_so_is_what_weft_compose_writes(plan: ComposePlan) -> None:
    assert mistakes("compose", plan.document()) == []


def test_a_mistake_in_a_file_would_be_seen() -> None:
    (document,) = documents(DEPLOY / "compose.service.yaml")
    document["services"]["weft"]["restrat"] = "always"
    assert any("restrat" in one for one in mistakes("compose", document))
    stateful = next(one for one in documents(DEPLOY / "kubernetes/service.yaml") if one["kind"] == "StatefulSet")
    stateful["spec"]["template"]["spec"]["containers"][0]["securityContext"]["readOnlyRoot"] = True
    assert any("readOnlyRoot" in one for one in mistakes("StatefulSet", stateful))
    (monitor,) = documents(DEPLOY / "kubernetes/pod-monitor.yaml")
    monitor["spec"]["podMetricsEndpoints"][0]["intervall"] = "15s"
    assert any("intervall" in one for one in mistakes("pod-monitor", monitor))


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_are_as_kubernetes_wants_them(path: Path) -> None:
    for document in documents(path):
        kind = "pod-monitor" if document["kind"] == "PodMonitor" else document["kind"]
        assert mistakes(kind, document) == [], document["metadata"]["name"]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_finds_nothing_wrong_with_the_units(path: Path, tmp_path: Path) -> None:
    unit = tmp_path / path.name.replace("@.", "@docs.")
    unit.write_text(path.read_text().replace("/opt/weft/bin/weft", "/bin/true"))
    said = subprocess.run(
        [program("systemd-analyze"), "--man=no", "verify", unit], capture_output=True, text=True, env={"PATH": "/bin"}
    )
    ours = [line for line in said.stderr.splitlines() if str(tmp_path) in line or path.name in line]
    assert said.returncode == 0 and ours == [], said.stderr


def test_nginx_accepts_its_file(tmp_path: Path) -> None:
    text = (DEPLOY / "nginx.conf").read_text()
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=weft.example.com",
         "-keyout", tmp_path / "privkey.pem", "-out", tmp_path / "fullchain.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    numbers = itertools.count()
    text = re.sub(r"\blisten [^\s;]+", lambda _: f"listen unix:{tmp_path}/{next(numbers)}.sock", text)
    (tmp_path / "weft.conf").write_text(text.replace("/etc/ssl/weft", str(tmp_path)))
    folders = "".join(
        f"{name}_temp_path {tmp_path}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    http = f"access_log off; {folders} include {tmp_path}/weft.conf;"
    main = f"error_log stderr; pid {tmp_path}/pid; events {{}} http {{ {http} }}"
    (tmp_path / "nginx.conf").write_text(main)
    said = subprocess.run(
        [program("nginx"), "-t", "-p", tmp_path, "-c", tmp_path / "nginx.conf"], capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr


def test_prometheus_accepts_its_configuration() -> None:
    said = subprocess.run(
        [program("promtool"), "check", "config", DEPLOY / "prometheus/prometheus.yml"], capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr


def test_alerts_fire_for_what_they_are_about(tmp_path: Path) -> None:
    for file in (DEPLOY / "prometheus/alerts.yml", ROOT / "tests/integration/alerts_test.yml"):
        shutil.copy(file, tmp_path)
    said = subprocess.run([program("promtool"), "test", "rules", "alerts_test.yml"], cwd=tmp_path, capture_output=True)
    assert said.returncode == 0, said.stdout.decode()


def test_every_metric_of_an_alert_is_documented() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())["groups"][0]["rules"]
    documented = set(re.findall(r"`(weft_\w+)`", (ROOT / "docs/metrics.md").read_text()))
    for rule in rules:
        assert set(re.findall(r"\bweft_\w+", rule["expr"])) <= documented, rule["alert"]
        assert rule["annotations"].keys() == {"summary", "description"}


# ── the chart and the manifests are the same ───────────────────────────────────────────────────────────────────────


def test_the_manifests_are_what_the_chart_renders(tmp_path: Path) -> None:
    program("helm")
    subprocess.run([ROOT / "scripts/manifests", tmp_path], check=True, capture_output=True)
    for path in MANIFESTS:
        assert (tmp_path / path.name).read_text() == path.read_text(), f"{path.name}: call scripts/manifests"


def test_every_choice_of_the_chart_gives_valid_manifests() -> None:
    helm, chart = program("helm"), DEPLOY / "kubernetes/chart"
    choices = ("workers.enabled=true", "pods.enabled=true,pods.count=16", "networkPolicy.enabled=false")
    for chosen in (*choices, "service.enabled=false"):
        rendered = subprocess.run(
            [helm, "template", "other", chart, "--set", "email=a@example.org", "--set", chosen],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        for document in yaml.safe_load_all(rendered):
            if document:
                assert mistakes(document["kind"], document) == [], (chosen, document["kind"])
    refused = subprocess.run([helm, "template", "other", chart], capture_output=True, text=True)
    assert refused.returncode and "site owners reach you by it" in refused.stderr


# ── against each other ─────────────────────────────────────────────────────────────────────────────────────────────


def everything() -> list[dict[str, Any]]:
    return [document for path in MANIFESTS for document in documents(path)]


def workloads() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    for document in everything():
        if "template" in document.get("spec", {}):
            yield document["metadata"]["name"], document["spec"], document["spec"]["template"]["spec"]


def test_every_container_is_confined_and_has_what_it_mounts() -> None:
    for name, spec, pod in workloads():
        context = pod["securityContext"]
        assert context["runAsNonRoot"] and context["runAsUser"] > 0, name
        assert pod["automountServiceAccountToken"] is False, name
        volumes = {one["name"] for one in pod.get("volumes", ())}
        volumes |= {one["metadata"]["name"] for one in spec.get("volumeClaimTemplates", ())}
        for container in pod["containers"]:
            own = container["securityContext"]
            assert own["readOnlyRootFilesystem"] and not own["allowPrivilegeEscalation"], name
            assert own["capabilities"] == {"drop": ["ALL"]}, name
            assert container["resources"]["limits"]["memory"], name
            assert {one["name"] for one in container["volumeMounts"]} <= volumes, name
        for volume in pod.get("volumes", ()):
            if "secret" in volume:
                assert volume["secret"]["defaultMode"] & 0o007 == 0, f"{name}: every user could read it"


def test_selectors_find_the_pods_that_they_are_about() -> None:
    labels = [spec["template"]["metadata"]["labels"] for _, spec, _ in workloads()]
    for document in everything():
        spec = document["spec"] if document["kind"] != "ConfigMap" else {}
        wanted = spec.get("selector", {}).get("matchLabels") or spec.get("selector") or {}
        if document["kind"] == "NetworkPolicy":
            wanted = spec["podSelector"]["matchLabels"]
        assert not wanted or any(wanted.items() <= one.items() for one in labels), document["metadata"]["name"]


# ── against Weft ───────────────────────────────────────────────────────────────────────────────────────────────────


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """Every command of Weft that a file starts, and where."""
    for path in UNITS:
        (line,) = re.findall(r"^ExecStart=/opt/weft/bin/weft (.*)$", path.read_text(), re.MULTILINE)
        yield path.name, shlex.split(line)
    for path in COMPOSE:
        for name, service in documents(path)[0]["services"].items():
            if service["image"].startswith("weft:"):
                yield f"{path.name} {name}", service["command"]
    for name, _, pod in workloads():
        for container in pod["containers"]:
            if container["image"].startswith("weft:"):
                yield f"kubernetes {name}", container["args"]


@pytest.mark.parametrize(
    ("place", "line"), list(command_lines()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_command_and_flag_is_one_of_weft(place: str, line: list[str]) -> None:
    assert isinstance(weft, LazyGroup)
    assert line[0] in COMMANDS, place
    command = weft.get_command(click.Context(weft), line[0])
    assert command is not None
    command.make_context(line[0], line[1:])


def variables() -> set[str]:
    files = [*UNITS, *COMPOSE, *MANIFESTS, DEPLOY / "Dockerfile", ROOT / "docs/deploy.md"]
    return {name for path in files for name in re.findall(r"\bWEFT_[A-Z_]+\b", path.read_text())}


def test_every_variable_is_a_setting_or_a_switch() -> None:
    for variable in variables() - (
        {"WEFT_BROKER_FILE", "WEFT_CLUSTER_KEY_FILE"} if "worker" not in COMMANDS else set()
    ):
        name = variable.removeprefix("WEFT_").lower()
        settings = [own_names(keys(product)) for product in PRODUCTS]
        in_file = any(own.get(name.removesuffix("_file")) in IN_SECRET_FILES for own in settings)
        assert in_file or any(name in own for own in settings) or SWITCHES.fullmatch(variable), variable


def test_the_crawl_of_the_manifests_has_settings_that_weft_accepts(tmp_path: Path) -> None:
    (settings,) = [one["data"] for one in everything() if one["kind"] == "ConfigMap"]
    file = tmp_path / "crawl.yaml"
    file.write_text(settings["crawl.yaml"])
    config = load(file, {"POD_INDEX": "1", "REDIS_PASSWORD": "geheim"}).config
    assert config.pods.here == (1,) and len(config.pods.pods) == config.pods.num_pods
    hosts = {name for name, spec, _ in workloads() if name == "weft-redis" and spec["replicas"] == config.pods.num_pods}
    assert hosts and all(".weft-redis:" in pod.redis_url for pod in config.pods.pods)


# ── the image ──────────────────────────────────────────────────────────────────────────────────────────────────────


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in text.splitlines() if line.strip()]


def test_what_the_image_copies_is_there_and_not_kept_from_the_builder() -> None:
    kept = [line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")]
    for name, rest in instructions():
        if name == "COPY" and "--from" not in rest:
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists() and source in kept, source


def test_every_stage_that_is_run_ends_as_another_user_than_root() -> None:
    user: dict[str, str] = {}
    stage = ""
    for name, rest in instructions():
        if name == "FROM":
            base, _, stage = re.split(r"\s+", rest, maxsplit=2)
            user[stage] = user.get(base, "root")
        if name == "USER":
            user[stage] = rest
    assert user["slim"] == user["browser"] == "10001:10001"
