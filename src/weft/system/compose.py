"""Writes a Docker Compose file for the Redis servers of a crawl's pods, with Prometheus and Grafana beside them.

The crawl itself runs on the host. So do Prometheus and Grafana in its network (`network_mode: host`): the crawl's
metrics stay on loopback, and nothing listens beyond it unless `bind` says so.

    docker-compose.yml       one server for each pod: memory limit, append-only file, password, health check
    .env                     the passwords, mode 0600; those of an earlier run are kept, the volumes may hold them
    monitoring/              what Prometheus and Grafana read: the files of `deploy/prometheus` and `deploy/grafana`
    logs/redis/pod-N/        made by Docker: each server's log

A file that exists is never overwritten silently: `write` refuses, or keeps the old one as `NAME.bak`.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from weft.errors import BadInput, Busy
from weft.files import replace_file

MOST_PODS = 256
LEAST_POD_MB = 256
PROMETHEUS_PORT, GRAFANA_PORT = 9090, 3000
# What a server may fill: while it rewrites its append-only file, changed pages of memory exist twice.
FILLED_SHARE = 0.75
REDIS_IMAGE = "redis:7.2-alpine"
PROMETHEUS_IMAGE = "prom/prometheus:v2.55.1"
GRAFANA_IMAGE = "grafana/grafana-oss:11.3.0"
_REDIS_PASSWORD, _GRAFANA_PASSWORD = "REDIS_PASSWORD", "GRAFANA_PASSWORD"
_FILE_HEADER = """\
# Redis for the {pods} pods of a crawl, made by `weft compose`. Start: docker compose -f {name} up -d --wait
# Passwords: .env, beside this file.
"""


@dataclass(frozen=True, slots=True)
class ComposePlan:
    """The content of the files; checked when it is made, so that one message reports all errors before a file
    exists.
    """

    pods: int = 16
    base_port: int = 6379
    total_memory_gb: int = 1440
    output: Path = Path("docker-compose.yml")
    bind: str = "127.0.0.1"
    with_monitoring: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.pods <= MOST_PODS:
            raise BadInput(
                f"--pods {self.pods}: a file has 1 to {MOST_PODS} pods. For more, make one file on each machine, and "
                "put the pods of all of them into one list"
            )
        if not 1 <= self.base_port <= 65536 - self.pods:
            raise BadInput(f"--base-port {self.base_port}: {self.pods} pods need ports from it up to 65535 at most")
        if self.pod_mb < LEAST_POD_MB:
            least = -(-self.pods * LEAST_POD_MB // 1024)
            raise BadInput(
                f"--total-memory-gb {self.total_memory_gb}: {self.pods} pods need at least {least} GB, "
                f"{LEAST_POD_MB} MB each"
            )
        try:
            ipaddress.ip_address(self.bind)
        except ValueError:
            raise BadInput(
                f"--bind {self.bind!r} is no address: use 127.0.0.1, 0.0.0.0 or this machine's own"
            ) from None
        own = {PROMETHEUS_PORT, GRAFANA_PORT} if self.with_monitoring else set()
        if clash := own & set(self.ports):
            raise BadInput(
                f"--base-port {self.base_port}: port {min(clash)} is Prometheus's or Grafana's; choose another, or "
                "leave them out with --no-monitoring"
            )

    @property
    def ports(self) -> range:
        """The host's port of each pod."""
        return range(self.base_port, self.base_port + self.pods)

    @property
    def pod_mb(self) -> int:
        """Memory limit of each server."""
        return self.total_memory_gb * 1024 // self.pods

    @property
    def filled_mb(self) -> int:
        """The memory that a server may fill."""
        return int(self.pod_mb * FILLED_SHARE)

    def document(self) -> dict[str, Any]:
        """The Compose file's content."""
        services: dict[str, Any] = {f"redis-{pod}": self._redis_service(pod) for pod in range(self.pods)}
        volumes: dict[str, Any] = {f"redis-data-{pod}": {} for pod in range(self.pods)}
        if self.with_monitoring:
            services |= {"prometheus": _prometheus_service(), "grafana": _grafana_service()}
            volumes |= {"prometheus-data": {}, "grafana-data": {}}
        return {"name": "weft-pods", "services": services, "volumes": volumes}

    def _redis_service(self, pod: int) -> dict[str, Any]:
        password = f"${{{_REDIS_PASSWORD}:?run weft compose, or set it in .env}}"
        command = ["redis-server", "--requirepass", password, "--maxmemory", f"{self.filled_mb}mb"]
        command += [
            "--maxmemory-policy",
            "noeviction",
            "--appendonly",
            "yes",
            "--appendfsync",
            "everysec",
            "--save",
            "",
        ]
        return {
            "image": REDIS_IMAGE,
            "container_name": f"crawler-redis-{pod}",
            "restart": "unless-stopped",
            # Below /data, which the image gives to its user at the start.
            "command": [*command, "--logfile", "/data/logs/redis.log"],
            "environment": {"REDISCLI_AUTH": password},  # read by the health check
            "ports": [f"{_host_in_url(self.bind)}:{self.ports[pod]}:6379"],
            "volumes": [f"redis-data-{pod}:/data", f"./logs/redis/pod-{pod}:/data/logs"],
            "mem_limit": f"{self.pod_mb}m",
            "stop_grace_period": "60s",
            "healthcheck": {
                "test": ["CMD-SHELL", "redis-cli ping | grep -q PONG"],  # an error reply exits with 0, too
                "interval": "5s",
                "timeout": "3s",
                "retries": 5,
            },
        }

    def crawl_settings(self) -> dict[str, Any]:
        """The keys of a crawl's configuration that name these pods."""
        pods = [{"redis_url": f"redis://{_host_in_url(_reachable_address(self.bind))}:{port}"} for port in self.ports]
        return {"pods": pods, "redis_password": f"${{{_REDIS_PASSWORD}}}"}

    def start_commands(self) -> list[str]:
        """The next commands to run, in the folder of the file."""
        return [
            f"docker compose -f {self.output.name} up -d --wait",
            "set -a; . ./.env; set +a",
            "weft crawl --seed-file seeds.txt --config crawl.yaml --email you@example.com",
        ]

    def write(self, *, backup: bool = False) -> list[Path]:
        """Writes all files; gives those that changed. Nothing is written when one of them may not be replaced."""
        self._check_ports()
        header = _FILE_HEADER.format(pods=self.pods, name=self.output.name)
        document = yaml.safe_dump(self.document(), sort_keys=False, width=120)
        wanted = {self.output: (header + document).encode()} | (
            self._monitoring_files() if self.with_monitoring else {}
        )
        changed = {path: data for path, data in wanted.items() if not path.is_file() or path.read_bytes() != data}
        if present := [path for path in changed if path.exists()]:
            if not backup:
                raise BadInput(
                    f"{present[0]} exists: --backup keeps it as {present[0].name}.bak, --output names another"
                )
            for path in present:
                path.replace(path.with_name(f"{path.name}.bak"))
        for path, data in changed.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, data, mode=0o644)
        return [*changed, *self._write_passwords()]

    def _monitoring_files(self) -> dict[Path, bytes]:
        folder = self.output.parent / "monitoring"
        shipped = files("weft.system") / "monitoring"
        return {
            folder / kind / file.name: file.read_bytes()
            for kind in ("prometheus", "grafana")
            for file in (shipped / kind).iterdir()
        }

    def _write_passwords(self) -> Iterator[Path]:
        """Adds the passwords that `.env` lacks; it is its owner's alone."""
        path = self.output.parent / ".env"
        lines = path.read_text().splitlines() if path.is_file() else []
        present = {line.partition("=")[0].strip() for line in lines}
        names = (_REDIS_PASSWORD, _GRAFANA_PASSWORD) if self.with_monitoring else (_REDIS_PASSWORD,)
        new = [f"{name}={secrets.token_urlsafe(24)}" for name in names if name not in present]
        if new:
            replace_file(path, "".join(f"{line}\n" for line in [*lines, *new]).encode())
            yield path
        else:
            path.chmod(0o600)

    def _check_ports(self) -> None:
        wanted = [(self.bind, port) for port in self.ports]
        if self.with_monitoring:
            wanted += [("127.0.0.1", PROMETHEUS_PORT), ("127.0.0.1", GRAFANA_PORT)]
        taken = [port for host, port in wanted if _is_port_taken(host, port)]
        if taken:
            raise Busy(
                f"port{'s' if len(taken) > 1 else ''} {_join_ports(taken)} taken on this machine: choose another "
                "--base-port (or --no-monitoring, if it is 9090 or 3000), or end what listens there; containers of an "
                "earlier file with `docker compose down`, which keeps their data"
            )


def _prometheus_service() -> dict[str, Any]:
    return {
        "image": PROMETHEUS_IMAGE,
        "restart": "unless-stopped",
        "network_mode": "host",
        "command": [
            "--config.file=/etc/prometheus/prometheus.yml",
            "--storage.tsdb.path=/prometheus",
            f"--web.listen-address=127.0.0.1:{PROMETHEUS_PORT}",
        ],
        "volumes": ["./monitoring/prometheus:/etc/prometheus:ro", "prometheus-data:/prometheus"],
    }


def _grafana_service() -> dict[str, Any]:
    return {
        "image": GRAFANA_IMAGE,
        "restart": "unless-stopped",
        "network_mode": "host",
        "environment": {
            "GF_SERVER_HTTP_ADDR": "127.0.0.1",
            "GF_SERVER_HTTP_PORT": str(GRAFANA_PORT),
            "GF_SECURITY_ADMIN_PASSWORD": f"${{{_GRAFANA_PASSWORD}:?run weft compose, or set it in .env}}",
            "GF_ANALYTICS_REPORTING_ENABLED": "false",
            "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
        },
        "volumes": [
            "./monitoring/grafana/datasource.yml:/etc/grafana/provisioning/datasources/weft.yml:ro",
            "./monitoring/grafana/dashboards.yml:/etc/grafana/provisioning/dashboards/weft.yml:ro",
            "./monitoring/grafana/weft.json:/var/lib/grafana/dashboards/weft.json:ro",
            "grafana-data:/var/lib/grafana",
        ],
    }


def _host_in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _reachable_address(bind: str) -> str:
    """The address that a crawl on this machine uses."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bind, bind)  # noqa: S104


def _is_port_taken(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError as error:
            if error.errno in (98, 13):  # EADDRINUSE; EACCES: a low port, which Docker may use
                return error.errno == 98
            raise BadInput(f"--bind {host}: {error.strerror}; use an address of this machine") from None
    return False


def _join_ports(ports: list[int]) -> str:
    named = ", ".join(map(str, ports[:4])) + (f" and {len(ports) - 4} more" if len(ports) > 4 else "")
    return f"{named} {'are' if len(ports) > 1 else 'is'}"
