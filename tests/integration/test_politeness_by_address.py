"""Names that share an address are one site when politeness is by address."""

from __future__ import annotations

from pathlib import Path

from weft.crawl.start import prepare
from weft.testing.web import synthetic_web


def test_hosts_of_one_address_share_one_clock(tmp_path: Path) -> None:
    with synthetic_web(hosts=3, pages=12, names=True) as web:
        prepared = prepare(
            web.seeds,
            {
                "scope": "any",
                "politeness_scope": "ip",
                "politeness_delay_seconds": 0.02,
                "allow_private": True,
                "data_dirs": [str(tmp_path / "crawl")],
                "resolve": {"*.weft-web.test": "127.0.0.1"},
                "prometheus_port": 0,
            },
            environment={},
        )
        assert prepared.orchestrator.run() == 0
        prepared.close()
        verdict = web.judge(delay_s=0.02, key=lambda _arrival: "one address")
        assert verdict.ok, verdict
        assert verdict.requests > 100
