"""Zstandard, from the standard library where that has it."""

import sys

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

__all__ = ["zstd"]
