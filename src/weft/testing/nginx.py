"""Writes a calm web as files with an nginx.conf that serves them exactly as `weft web` would, for larger runs.

Each answer's body is a file named after the decoded path and the raw query, with the suffix `.page`, so that a page and
a directory of the same name can coexist. Status, Location, Content-Type and X-Robots-Tag are in maps of the
configuration, by host and request URI.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote_to_bytes

from weft.errors import BadInput
from weft.testing.content import pages
from weft.testing.content.resources import Resource
from weft.testing.content.sites import SyntheticSite
from weft.testing.world import World

REDIRECTS = (301, 302, 303, 307, 308)
ERRORS = (204, 403, 404, 410, 451)
SUFFIX = b".page"
DEFAULT_TYPE = "text/html; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Written:
    """The paths and counts of what was written."""

    config: Path
    files: int
    bytes: int


def write(world: World, directory: Path) -> Written:
    """Writes the whole web under `directory`; returns the path of its nginx.conf and counts."""
    root = directory.resolve()
    try:
        (root / "logs").mkdir(parents=True, exist_ok=True)
        (root / "scratch").mkdir(exist_ok=True)
        files, total, maps = _write_pages(world, root / "www")
        config = root / "nginx.conf"
        config.write_text(_nginx_config(world, root, maps))
    except OSError as error:
        raise BadInput(f"{error.filename or directory}: {error.strerror}") from error
    return Written(config, files, total)


def _write_pages(world: World, root: Path) -> tuple[int, int, dict[str, list[str]]]:
    files = total = 0
    maps: dict[str, list[str]] = {"status": [], "location": [], "type": [], "robots_tag": []}
    for site in world.sites:
        base = os.fsencode(root / site.host)
        for resource in world.every_resource(site):
            _add_map_entries(maps, site, resource)
            if resource.status != 200:
                continue
            body = pages.render(resource, world.texts)
            name = base + file_name(resource.path)
            os.makedirs(os.path.dirname(name), exist_ok=True)  # noqa: PTH103, PTH120
            with open(name, "wb") as file:  # noqa: PTH123
                file.write(body)
            files += 1
            total += len(body)
    return files, total, maps


def file_name(path: str) -> bytes:
    """The file in which nginx looks for a path: `$uri$is_args$args.page`; its $uri is decoded, with runs of slashes
    merged."""
    plain, mark, query = path.partition("?")
    decoded = unquote_to_bytes(plain)
    while b"//" in decoded:
        decoded = decoded.replace(b"//", b"/")
    return decoded + (b"?" + query.encode() if mark and query else b"") + SUFFIX


def _add_map_entries(maps: dict[str, list[str]], site: SyntheticSite, resource: Resource) -> None:
    where = _quote_nginx(f"{site.host}{resource.path}")
    if resource.status != 200:
        maps["status"].append(f"{where} {resource.status};")
    if resource.location is not None:
        maps["location"].append(f"{where} {_quote_nginx(resource.location)};")
    kind = pages.content_type(resource) or ""
    if kind != DEFAULT_TYPE:
        maps["type"].append(f"{where} {_quote_nginx(kind)};")
    for name, value in resource.headers:
        if name == "X-Robots-Tag":
            maps["robots_tag"].append(f"{where} {_quote_nginx(value)};")


def _quote_nginx(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "${dollar}") + '"'


def _nginx_config(world: World, root: Path, maps: dict[str, list[str]]) -> str:
    spec = world.spec
    host = "$host" if spec.names else "$server_addr"
    listens = list(dict.fromkeys(site.address for site in world.sites))
    blocks = []
    for name, rows in maps.items():
        default = DEFAULT_TYPE if name == "type" else ""
        body = "\n".join(f"    {row}" for row in rows)
        blocks.append(f'  map "{host}$request_uri" $weft_{name} {{\n    default "{default}";\n{body}\n  }}\n')
    listen = "\n".join(f"    listen {address}:{spec.port} backlog=4096;" for address in listens)
    returns = "\n".join(
        [
            *(f"      if ($weft_status = {code}) {{ return {code} $weft_location; }}" for code in REDIRECTS),
            *(f"      if ($weft_status = {code}) {{ return {code}; }}" for code in ERRORS),
        ]
    )
    return f"""# Written by `weft web --nginx`. Start it with: nginx -c {root}/nginx.conf
daemon off;
worker_processes 1;
{"user root;" if os.geteuid() == 0 else ""}
pid {root}/nginx.pid;
error_log {root}/logs/error.log warn;
worker_rlimit_nofile 20000;
events {{ worker_connections 16384; multi_accept on; }}
http {{
  access_log off;
  client_body_temp_path {root}/scratch/body;
  proxy_temp_path {root}/scratch/proxy;
  fastcgi_temp_path {root}/scratch/fastcgi;
  uwsgi_temp_path {root}/scratch/uwsgi;
  scgi_temp_path {root}/scratch/scgi;
  sendfile on;
  tcp_nopush on;
  keepalive_timeout 600;
  keepalive_requests 100000000;
  open_file_cache max=200000 inactive=600s;
  open_file_cache_valid 600s;
  absolute_redirect off;
  server_tokens off;
  map_hash_max_size 1048576;
  map_hash_bucket_size 512;
  geo $dollar {{ default "$"; }}
{"".join(blocks)}
  server {{
{listen}
    server_name _;
    root {root}/www;
    types {{ }}
    default_type "";
    location / {{
{returns}
      add_header Content-Type $weft_type;
      add_header X-Robots-Tag $weft_robots_tag;
      try_files /{host}$uri$is_args$args{SUFFIX.decode()} =404;
    }}
  }}
}}
"""
