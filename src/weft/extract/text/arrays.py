"""Imports numpy, for computations over whole texts; if it is missing, an error with the command to install it."""

from __future__ import annotations

from weft.errors import Missing

try:
    import numpy as np
except ImportError as error:
    raise Missing.of_extra("numpy", "pages") from error

__all__ = ["np"]
