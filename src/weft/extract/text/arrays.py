"""numpy, for what counts over whole texts; an error that says how to install it where it is missing."""

from __future__ import annotations

from weft.errors import Missing

try:
    import numpy as np
except ImportError as error:
    raise Missing.of_extra("numpy", "pages") from error

__all__ = ["np"]
