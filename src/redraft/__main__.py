"""`python -m redraft` is the command `redraft`."""

from redraft.cli import main

raise SystemExit(main())
