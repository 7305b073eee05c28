"""Rules about structure: the tree is the data flow, and the code stays readable and safe."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"
PACKAGE = SRC / "redraft"

# A stage imports its own line and the lines above it, never one below.
STAGES = [
    "errors",
    "config",
    "folder",
    "distributed",
    "data",
    "tokenizers",
    "domains",
    "batches",
    "fusion",
    "precision",
    "noise",
    "short_attention",
    "attention",
    "denoiser",
    "optimizers",
    "objective",
    "recording",
    "methods",
    "checkpoint",
    "trainer",
    "sampler",
    "likelihood",
    "repair",
    "evaluation",
    "model",
    "playlist",
    "experiments",
    "comparison",
    "wording",
    "terminal",
    "report",
    "web",
    "quickstart",
    "bench",
    "commands",
    "cli",
    "__init__",
    "__main__",
]

METHODS = {"mdlm", "d3pm-uniform", "d3pm-semantic", "d3pm-reinforce", "fldd", "vsdd"}
PICKLES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
SCREEN = 60  # lines

Finding = tuple[ast.AST, str]
Rule = Callable[[ast.Module, Path], Iterator[Finding]]


def violations(rule: Rule) -> list[str]:
    """What `rule` finds in any file of the package, as `redraft/file.py:line: message`."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        for node, message in rule(tree, path):
            line = getattr(node, "lineno", 1)
            found.append(f"{path.relative_to(SRC)}:{line}: {message}")
    return found


def stage(path: Path) -> str:
    """`redraft/noise/uniform.py` belongs to the stage `noise`."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_modules(tree: ast.Module, path: Path) -> Iterator[tuple[ast.AST, str]]:
    """Every absolute dotted name that the file imports, at its top or inside a function.

    `from a import b` gives `a.b`, whether b is a module or a name in one.
    """
    package = path.relative_to(SRC).parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node, f"{base}.{alias.name}"


def calls(tree: ast.Module) -> Iterator[tuple[ast.Call, str, dict[str, ast.expr]]]:
    """Every call with the function as written, `torch.load`, and its keywords."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node, ast.unparse(node.func), {k.arg: k.value for k in node.keywords if k.arg}


# ------------------------------------------------------------------ the rules


def points_downstream(tree: ast.Module, path: Path) -> Iterator[Finding]:
    here = stage(path)
    if here not in STAGES:
        yield tree, f"unknown stage '{here}': add it to STAGES, where the data passes it"
        return
    for node, name in imported_modules(tree, path):
        top, _, rest = name.partition(".")
        there = rest.partition(".")[0]
        # `from redraft import __version__` names no stage: every module runs after the package's
        # own __init__ has.
        if top == "redraft" and there in STAGES and STAGES.index(there) > STAGES.index(here):
            yield node, f"'{here}' imports '{there}', which is downstream of it"


def asks_for_a_method(tree: ast.Module, path: Path) -> Iterator[Finding]:
    if path == PACKAGE / "methods" / "__init__.py":
        return
    for node in ast.walk(tree):
        operands = []
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            operands = [node.value]
        for operand in operands:
            literals = (
                operand.elts if isinstance(operand, ast.Tuple | ast.List | ast.Set) else [operand]
            )
            for literal in literals:
                if isinstance(literal, ast.Constant) and literal.value in METHODS:
                    yield node, f"asks whether a method is '{literal.value}': let the method answer"


def may_unpickle(tree: ast.Module, path: Path) -> Iterator[Finding]:
    for node, name in imported_modules(tree, path):
        if name.partition(".")[0] in PICKLES or name == "torch.load":
            yield node, f"imports {name}: no pickle is ever loaded"
    for node, function, keywords in calls(tree):
        safe = keywords.get("weights_only")
        if function == "torch.load" and not (isinstance(safe, ast.Constant) and safe.value is True):
            yield node, "torch.load without weights_only=True"
        pickled = keywords.get("allow_pickle")
        if pickled and not (isinstance(pickled, ast.Constant) and pickled.value is False):
            yield node, f"{function} with allow_pickle"
        if function.endswith("read_pickle"):
            yield node, f"{function}: no pickle is ever loaded"


def is_longer_than_a_screen(tree: ast.Module, path: Path) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > SCREEN:
                yield node, f"{node.name} has {lines} lines, at most {SCREEN} fit on a screen"


@pytest.mark.parametrize(
    "rule",
    [points_downstream, asks_for_a_method, may_unpickle, is_longer_than_a_screen],
    ids=lambda rule: rule.__name__,
)
def test_no_module(rule: Rule) -> None:
    assert any(PACKAGE.rglob("*.py")), f"no modules under {PACKAGE}"
    found = violations(rule)
    assert not found, "\n" + "\n".join(found)


# ---------------------------------------------------- what must not import torch

PROBE = """
import json, runpy, sys
code = 0
try:
    {action}
except SystemExit as stop:
    code = stop.code or 0
print()
print(json.dumps({{"code": code, "torch": "torch" in sys.modules}}))
"""


def probe(action: str) -> tuple[str, dict]:
    """What `action` prints in a Python of its own; its exit code, and whether torch came along."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(action=action)],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    *printed, verdict = done.stdout.rstrip("\n").split("\n")
    return "\n".join(printed), json.loads(verdict)


def command_names() -> list[str]:
    """The words of the command table."""
    try:
        from redraft.cli import COMMANDS
    except ImportError:
        return ["train", "sample", "infill", "revise", "quickstart"]
    return sorted(COMMANDS)


def test_import_is_light() -> None:
    _, verdict = probe("import redraft")
    assert verdict == {"code": 0, "torch": False}


@pytest.mark.parametrize("command", ["", *command_names()])
def test_help_is_light(command: str) -> None:
    words = ["redraft", *command.split(), "--help"]
    action = f"sys.argv = {words}; runpy.run_module('redraft', run_name='__main__')"
    printed, verdict = probe(action)
    assert verdict == {"code": 0, "torch": False}
    assert "redraft" in printed
