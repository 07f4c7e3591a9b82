"""What the benchmarks share.

What is measured starts as an installed program does, with its bytecode there: to compile all modules at every start, as
some machines are set to do, takes half a second.
"""

import os

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
