"""redraft: discrete diffusion that learns how to corrupt.

    import redraft
    redraft.load("molecules").sample(16)
    model = redraft.train(redraft.read_recipe("tiny/vsdd"), "runs/first")

Names are imported when they are first used, so that `import redraft` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from redraft.config import Config, read_recipe
    from redraft.errors import UserError
    from redraft.model import Model, load, resume, train

__all__ = ["Config", "Model", "UserError", "load", "read_recipe", "resume", "train"]

_HOMES = {
    "Config": "config",
    "read_recipe": "config",
    "UserError": "errors",
    "Model": "model",
    "load": "model",
    "resume": "model",
    "train": "model",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'redraft' has no attribute {name!r}")
    return getattr(importlib.import_module(f"redraft.{_HOMES[name]}"), name)
