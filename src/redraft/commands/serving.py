"""The command that shows: serve."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated

from tyro.conf import Positional, arg

from redraft.config import check

HERE = ("127.0.0.1", "localhost", "::1")


@dataclass
class Serve:
    """A local page: watch a sequence being re-drafted, step by step, and see the learned noise.

    For example:
    $ redraft serve
    $ redraft serve molecules runs/stories runs/playlists --port 9000
    """

    models: Annotated[Positional[tuple[str, ...]], arg(metavar="[MODEL...]")] = ()
    """Run folders, shipped models or hub ids; by default all shipped ones."""
    port: int = 8765
    """The page is at http://127.0.0.1:PORT; 0 takes any port that is free."""
    host: str = HERE[0]
    """The address to listen at; another than this machine's own needs --anyone-may-connect."""
    anyone_may_connect: bool = False
    """Let everybody who reaches this machine use the models: no password, no encryption."""
    device: str = "auto"
    """cpu, cuda, or auto: the GPU where there is one."""

    def run(self) -> None:
        check(
            self.host in HERE or self.anyone_may_connect,
            f"--host {self.host} lets others reach this page, without a password or encryption; "
            "add --anyone-may-connect if that is meant",
        )
        missing = [name for name in ("fastapi", "uvicorn") if find_spec(name) is None]
        check(not missing, f"redraft serve needs {' and '.join(missing)}: pip install redraft[web]")
        from redraft.model import shipped
        from redraft.web.server import serve

        serve(self.models or shipped(), self.host, self.port, self.anyone_may_connect, self.device)
