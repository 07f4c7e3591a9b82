"""How often hands report, and after which silence they are lost."""

from __future__ import annotations

REPORT_S = 5.0
LOST_S = 15.0
