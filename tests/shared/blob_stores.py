"""A blob store for tests in which nothing is spilled."""

from __future__ import annotations

from weft.frontier.durability.blobs import BlobStore


def unused_store() -> BlobStore:
    """It has no file, and fails where it is used."""
    return BlobStore.__new__(BlobStore)
