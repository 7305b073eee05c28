"""`python -m redraft` is the command `redraft`; torchrun starts it so."""

import os

from redraft.cli import main

code = main()
if "WORLD_SIZE" in os.environ:
    from redraft.distributed import leave

    leave(code)
raise SystemExit(code)
