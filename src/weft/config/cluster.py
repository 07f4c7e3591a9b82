"""The keys of a cluster: its broker, its key, and how much may be out to its hands."""

from typing import Annotated

from msgspec import Meta, field

from weft.config.section import Positive, Section, Timeout, Tuning


class ClusterSection(Section, frozen=True, kw_only=True):
    """The broker between a brain and its hands, and the key by which they know each other."""

    broker: Annotated[
        str | None, Tuning("Redis or Valkey between this machine and its workers, as in redis://10.0.0.7:6379/0")
    ] = None
    key_file: Annotated[
        str | None, Tuning("file with the cluster's key, as `weft cluster init` makes it; mode 0600")
    ] = field(default=None, name="cluster_key_file")
    key: Annotated[str | None, Tuning("the cluster's key itself; better is `cluster_key_file`")] = field(
        default=None, name="cluster_key"
    )
    hand_in_flight: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)], Tuning("requests that are out to one worker, at most")
    ] = 64
    hand_queue_s: Annotated[Timeout, Tuning("seconds that a request may wait for its worker to begin")] = field(
        default=30.0, name="hand_queue_seconds"
    )
    hand_slack_s: Annotated[Timeout, Tuning("seconds that a worker has for a request besides total_timeout")] = field(
        default=15.0, name="hand_slack_seconds"
    )
    bytes_: Annotated[Positive, Tuning("bytes of results that workers keep on the broker, at most")] = field(
        default=512 << 20, name="cluster_bytes"
    )
    shared_dir: Annotated[
        str | None, Tuning("folder that this machine and its workers share, for large results; none: the broker")
    ] = None
    concurrency: Annotated[
        Annotated[int, Meta(ge=1, le=256)], Tuning("tasks that the worker of `weft up --cluster` runs at a time")
    ] = field(default=8, name="celery_concurrency")
    chunk_s: Annotated[
        Timeout, Tuning("seconds that a chunk of a job may take, by which the job's time is limited")
    ] = field(default=60.0, name="chunk_seconds")
    wait_margin: Annotated[
        Annotated[float, Meta(ge=1, le=100)], Tuning("how much longer than that a job is waited for, as a factor")
    ] = 2.0
    poll_s: Annotated[
        Timeout, Tuning("seconds between two looks at the progress of a job that gives no other sign")
    ] = field(default=15.0, name="progress_poll_seconds")
    unknown_s: Annotated[Timeout, Tuning("seconds that a job of unknown size is waited for")] = field(
        default=1800.0, name="unknown_timeout_seconds"
    )
