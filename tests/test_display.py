"""Figures and the terminal: they hold what they should, and nothing makes them fall over."""

import io
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from rich.console import Console

from redraft import terminal
from redraft.report import figures
from redraft.terminal import TrainingDisplay, diff, show_noise, show_revision, sparkline
from redraft.tokenizers.base import EOS, MASK, PAD, SPECIALS
from redraft.tokenizers.smiles import SmilesTokenizer

LEADER = {
    "leader/reward": 0.01,
    "leader/reward_spread": 0.02,
    "leader/reference_loss": 1.25,
    "leader/entropy_mean": 3.0,
    "leader/entropy_min": 2.0,
    "leader/entropy_share": 0.75,
    "leader/largest_transition": 0.12,
    "leader/terminal_kl": 1e-3,
}


def kernel(T: int, valid: int, seed: int = 0) -> np.ndarray:
    """A random M (T, V, V): zero diagonal on valid states, PAD and MASK stay."""
    M = np.random.default_rng(seed).random((T, valid + EOS, valid + EOS)) + 0.01
    states = np.arange(valid + EOS)
    M[:, :, :EOS] = M[:, :EOS] = M[:, states, states] = 0
    M[:, EOS:] /= M[:, EOS:].sum(-1, keepdims=True)
    M[:, [PAD, MASK], [PAD, MASK]] = 1
    return M


def names(valid: int) -> list[str]:
    """Odd ones too: dollars, control characters, long words."""
    odd = ["$x$", "a\tb", "␣red", "a_very_long_token_indeed"]
    return [*SPECIALS, *(odd + [f"w{i}" for i in range(valid)])[: valid - 1]]


def is_png(path) -> bool:
    data = path.read_bytes()
    return data.startswith(b"\x89PNG") and len(data) > 1000


def recorder(width: int = 100, terminal: bool = False) -> tuple[Console, io.StringIO]:
    """A console that writes to memory, and what it wrote."""
    file = io.StringIO()
    if terminal:
        file.isatty = lambda: True  # pyright: ignore
    return Console(file=file, width=width, force_terminal=terminal, color_system=None), file


def plain_lines(settings: tuple[int | None, float | None, str], updates) -> list[str]:
    """What a display that is no terminal prints."""
    console, file = recorder()
    with TrainingDisplay(*settings, console) as display:
        for update in updates:
            display.update(*update)
    return file.getvalue().splitlines()


# ------------------------------------------------------------------ figures


@pytest.mark.parametrize("valid", [3, 17, 130])
@pytest.mark.parametrize("T", [1, 7])
def test_noise_maps(tmp_path, valid, T):
    M, tokens = kernel(T, valid), names(valid)
    figure = figures.noise_maps(M, tokens, frequency=np.arange(len(tokens)))
    maps = [ax for ax in figure.axes if ax.images]
    assert len(maps) == min(T, 3)
    shown = np.ma.filled(np.ma.asarray(maps[0].images[0].get_array()), np.nan)
    assert shown.shape == (min(valid, 24),) * 2
    assert np.isnan(np.diag(shown)).all() and np.isfinite(shown).sum() == shown.size - len(shown)
    assert maps[0].images[0].get_clim()[0] == -maps[0].images[0].get_clim()[1]
    assert is_png(figures.save(figure, tmp_path / "noise.png"))


def test_uniform_noise_is_one_times_uniform():
    M = np.full((1, 7, 7), 1 / 4)
    ratio = terminal.times_uniform(M)
    assert np.isnan(ratio[0].diagonal()).all()
    assert np.nanmin(ratio) == pytest.approx(1) and np.nanmax(ratio) == pytest.approx(1)


@given(alpha=st.floats(0, 0.99), valid=st.integers(3, 9))
def test_step_matrices_are_as_good_as_kernels(alpha, valid):
    M = kernel(2, valid)
    Q = alpha * np.eye(M.shape[-1]) + (1 - alpha) * M
    np.testing.assert_allclose(terminal.times_uniform(Q), terminal.times_uniform(M), rtol=1e-9)


def test_noise_that_never_reaches_a_token_is_drawn(tmp_path):
    M = kernel(3, 5)
    M[:, EOS:, 4] = 0
    M[:, 5] = 0  # a row that goes nowhere, as in absorbing noise
    assert is_png(figures.save(figures.noise_maps(M, names(5), times=[2]), tmp_path / "n.png"))


def rows(n: int) -> list[dict[str, float]]:
    noise = np.random.default_rng(0).random(n)
    metrics = [{"step": 50.0 * k, "loss": 1 + 9 * math.exp(-k) + noise[k]} for k in range(n)]
    return [row | LEADER if k % 2 else row for k, row in enumerate(metrics)]


@pytest.mark.parametrize("n", [1, 37])
def test_learning_curves(tmp_path, n):
    figure = figures.learning_curves(rows(n))
    assert sum(ax.axison for ax in figure.axes) == (1 if n == 1 else 6)
    assert is_png(figures.save(figure, tmp_path / "curves.png"))


def test_learning_curves_survive_what_training_may_not(tmp_path):
    broken = [row | {"loss": math.nan, "leader/reward": math.inf} for row in rows(5)]
    only_some = [{"step": 1, "leader/reward": 1.0}, {"step": 2, "leader/entropy_mean": 1.0}]
    for case in ([], [{"step": 1}], broken, rows(9) + broken, only_some):
        assert is_png(figures.save(figures.learning_curves(case), tmp_path / "curves.png"))


@pytest.mark.parametrize("steps, length", [(1, 1), (50, 11), (3, 300)])
@pytest.mark.parametrize("with_clean", [True, False])
def test_revision_trace(tmp_path, steps, length, with_clean):
    tokens = names(20)
    x = np.random.default_rng(0).integers(EOS, len(tokens), (steps + 1, length))
    x[:, length - 1] = PAD if length > 1 else EOS
    frames = [(steps - n, ids) for n, ids in enumerate(x.tolist())]
    figure = figures.revision_trace(frames, tokens, x[-1].tolist() if with_clean else None)
    assert figure.get_size_inches()[0] < 16
    assert len(figure.axes[0].get_yticks()) == min(steps + 1, 16) + with_clean
    assert is_png(figures.save(figure, tmp_path / "trace.png"))


def test_svg_and_the_same_file_twice(tmp_path):
    def written(name: str) -> bytes:
        return figures.save(figures.learning_curves(rows(1)), tmp_path / "new" / name).read_bytes()

    first = written("a.svg")
    assert b"<svg" in first and first == written("b.svg")


def test_molecule_grid_draws_what_it_can():
    image = figures.molecule_grid(["CCO", "c1ccccc", "", "C" * 300, "c1ccccc1"], columns=3)
    assert image.size == (3 * figures.CELL[0], 2 * figures.CELL[1])
    labelled = figures.molecule_grid(["CCO", "xx"], legends=["ethanol", "n" * 200])
    assert labelled.size[0] == 2 * figures.CELL[0]
    assert len(labelled.getcolors(1 << 20)) > 2  # pyright: ignore


def test_figures_leave_a_user_s_session_alone():
    code = (
        "import sys, matplotlib as m; m.rcParams['font.size'] = 33; before = dict(m.rcParams)\n"
        "from redraft.report import figures\n"
        "figures.learning_curves([{'step': 1, 'loss': 2.0}])\n"
        "assert dict(m.rcParams) == before and 'matplotlib.pyplot' not in sys.modules\n"
        "assert 'torch' not in sys.modules and 'rdkit' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert isinstance(figures.learning_curves([]), Figure)


# ------------------------------------------------------------------ training


def test_plain_output_is_a_line_every_tenth():
    updates = [(k, k / 1000, {"loss": 2.0} | LEADER, 10.0) for k in range(1, 1001)]
    lines = plain_lines((1000, None, "vsdd"), updates)
    assert 11 <= len(lines) <= 13
    assert all(line.isascii() and line.isprintable() for line in lines)
    assert "step 500/1,000" in lines[5] and "0:00:50 left" in lines[5]
    for fact in ("loss 2.000", "reward 0.01 +- 0.02", "L_ref 1.250", "75 % of uniform's", "0.12"):
        assert fact in lines[5]
    assert lines[-1].startswith("vsdd: trained for 1,000 steps in 0:00:0")


def test_nothing_is_needed_and_nothing_need_be_finite():
    bad = {"loss": math.nan, "leader/reward": math.inf, "leader/entropy_share": math.nan}
    updates = [
        (1, math.nan, {}, math.nan),
        (2, 0.5, bad, 0.0),
        (3, 7.0, {"leader/reward_spread": 1.0}, math.inf),
    ]
    for total_steps, total_seconds in ((None, None), (3, None), (None, 60.0)):
        for width in (30, 80):
            console, file = recorder(width, terminal=True)
            with TrainingDisplay(total_steps, total_seconds, "mdlm", console) as live:
                for update in updates:
                    live.update(*update)
                    console.print(live.view())
            assert "mdlm: trained for 3 steps" in file.getvalue().replace("\n", " ")
        lines = plain_lines((total_steps, total_seconds, "mdlm"), updates)
        assert "nan" in lines[1] and "trained for 3 steps" in lines[-1]


def test_live_view_shows_both_players():
    console, file = recorder(terminal=True)
    with TrainingDisplay(100, None, "vsdd", console) as display:
        assert "getting ready, 0:00:0" in rendered(display)
        display.update(10, 0.1, {"loss": 3.0}, 5.0)
        assert "ready" not in rendered(display) and "leader" not in rendered(display)
        display.update(20, 0.2, {"loss": 1.0} | LEADER, 5.0)
        display.update(30, 0.3, {"loss": 2.0}, 5.0)
        view = rendered(display)
    for fact in ("denoiser", "leader", "30 %", "0:00:14 left", "█▁▅", "0.01 ± 0.02", "75 %"):
        assert fact in view
    assert "\x1b" in file.getvalue()


def rendered(display: TrainingDisplay) -> str:
    console, file = recorder()
    console.print(display.view())
    return file.getvalue()


def test_a_stopped_run_says_so():
    console, file = recorder()
    with pytest.raises(KeyboardInterrupt), TrainingDisplay(10, None, "vsdd", console) as display:
        display.update(4, 0.4, {"loss": 1.0}, 1.0)
        raise KeyboardInterrupt
    assert "vsdd: stopped after 4 steps" in file.getvalue()


def test_a_run_that_never_began_has_nothing_to_say():
    console, file = recorder()
    with pytest.raises(KeyboardInterrupt), TrainingDisplay(10, None, "vsdd", console):
        raise KeyboardInterrupt
    assert file.getvalue() == ""


def test_a_reader_that_leaves_is_a_broken_pipe_once(monkeypatch):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        console = terminal.new_console()
        with pytest.raises(BrokenPipeError):
            console.print("to nobody")
        console.print("to nowhere")


@given(st.lists(st.floats(), max_size=60), st.integers(1, 30), st.booleans())
def test_sparklines_never_grow(values, width, log):
    line = sparkline([v for v in values if not abs(v) > 1e150], width, log)
    assert len(line) <= width and set(line) <= set(" ▁▂▃▄▅▆▇█")


def test_long_curves_are_kept_short():
    curve = terminal.Curve(size=16)
    for k in range(10_000):
        curve.add(float(k))
    assert len(curve.values) < 16 and curve.last == 9999
    assert curve.values == sorted(curve.values)


# ------------------------------------------------------------------ sequences and noise


def test_revision_is_a_line_a_step():
    tokenizer = SmilesTokenizer.fit(["CC(=O)N", "c1ccncc1"])
    clean = tokenizer.encode("CC(=O)N")
    draft = tokenizer.encode("CC(=N)N")
    console, file = recorder()
    frames = [(2, draft), (1, np.array(draft)), (0, clean)]
    show_revision(frames, tokenizer, np.array(clean), console)  # pyright: ignore
    assert file.getvalue().splitlines() == [
        "clean  C C ( = O ) N [EOS]",
        "t=2    C C ( = {N} ) N [EOS]",
        "t=1    C C ( = N ) N [EOS]",
        "t=0    C C ( = {O} ) N [EOS]",
    ]


def test_revision_in_colour_keeps_long_sequences_together():
    tokenizer = SmilesTokenizer.fit(["CC(=O)N"])
    ids = tokenizer.encode("C" * 90) + [PAD] * 9
    file = io.StringIO()
    console = Console(file=file, width=40, force_terminal=True, color_system="standard")
    show_revision([(1, ids), (0, [tokenizer.encode("N")[0], *ids[1:]])], tokenizer, console=console)
    lines = file.getvalue().splitlines()
    assert "\x1b[1;4;35mN" in file.getvalue() and "[PAD]" not in file.getvalue()
    assert len(lines) > 4 and all("C" in line for line in lines[:3])


def test_diff_marks_what_was_replaced_inserted_and_left_out():
    tokens = [*SPECIALS, "C", "N", "O", "c"]
    C, N, O, c = range(3, 7)
    text = diff([C, C, N], [C, O, N], tokens)
    assert text.plain == "C O N"
    assert [(text.plain[s.start : s.end], "bold" in str(s.style)) for s in text.spans] == [
        ("O", True)
    ]
    assert diff([C, N], [C, N, PAD], tokens, plain=True).plain == "C N"
    assert diff([C, N], [C, N, O], tokens, plain=True).plain == "C N {+O}"
    assert diff([C, N, O], [C, O], tokens, plain=True).plain == "C {-N} O"
    assert diff([], [], tokens).plain == ""


def test_running_text_keeps_its_spaces():
    tokens = [*SPECIALS, "␣red", "␣blue", "Lily", "␣", "\n"]
    assert diff([5, 3], [5, 4], tokens, plain=True).plain == "Lily {blue}"
    assert diff([5, 6], [5, 7], tokens, plain=True).plain == "Lily{\\n}"


@pytest.mark.parametrize("valid", [3, 130])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_noise_table(valid, encoding):
    M_t = np.zeros((valid + EOS, valid + EOS))
    M_t[EOS:, EOS] = 1  # everything becomes EOS
    M_t[EOS, EOS + 1] = 1
    tokens = [*SPECIALS, *(f"w{i}" for i in range(valid - 1))]
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding, write_through=True), width=80)
    show_noise(M_t, tokens, np.arange(valid + EOS)[::-1], top=5, rows=8, console=console)
    head, *lines = raw.getvalue().decode(encoding).splitlines()
    assert "times as often as under uniform" in head and len(lines) == min(valid, 8)
    assert lines[0].startswith("[EOS]") and "w0" in lines[0]
    assert all(f"{valid - 1}x" in line or f"{valid - 1}.0x" in line for line in lines)
