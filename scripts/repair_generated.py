"""Repair of what another generator got wrong: an LSTM that writes SMILES, and its broken ones.

    python scripts/repair_generated.py OUT [--seconds 900] [--samples 4000] [-n 500]

The LSTM learns ZINC-250k token by token, without rules or noise, as generators of molecules have
long been made. What it writes and does not parse is repaired by the model of the package, by a
blind search and by rules. What it meant nobody knows, so there is no exact recovery; but the LSTM
says how likely it finds any string, and so judges what was made of its own.

OUT/repair-generated.json has, of the broken and of each repairer's results:

    repair_rate      share that is valid now
    one_edit         share that is valid now and one token away from what was written
    edit_distance    tokens between what was written and its repair, over the repaired
    nats             of a token, by the LSTM: of results, over the repaired; of the broken; of what
                     it wrote that was valid
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import redraft
from redraft.batches import Batches, collate
from redraft.cli import outcome
from redraft.config import DataConfig
from redraft.data.molecules import canonical_or_none
from redraft.domains import Dataset, prepare
from redraft.evaluation import results, statistics
from redraft.evaluation.statistics import Estimate
from redraft.experiments.repair import any_edit, baselines, plain
from redraft.folder import write_json
from redraft.model import Model
from redraft.repair import distance
from redraft.tokenizers.base import EOS, MASK, PAD, Tokenizer
from redraft.tokenizers.smiles import SmilesTokenizer

BEGIN = MASK
"""What stands before the first token: never written, so that it can mean this."""


class Writer(nn.Module):
    """Each token from those before it."""

    def __init__(self, V: int, width: int):
        super().__init__()
        self.embed = nn.Embedding(V, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, V)

    def forward(self, x: Tensor, memory: Any = None) -> tuple[Tensor, Any]:
        h, memory = self.lstm(self.embed(x), memory)
        logits = self.head(h)  # (B, L, V)
        logits[..., [PAD, MASK]] = -torch.inf
        return logits, memory

    def nats(self, x: Tensor) -> Tensor:
        """(B, L) of each token, 0 at PAD."""
        before = torch.cat([torch.full_like(x[:, :1], BEGIN), x[:, :-1]], 1)
        return cross_entropy(self(before)[0].mT, x, ignore_index=PAD, reduction="none")


def learned(data: Dataset, seconds: float, width: int, seed: int) -> tuple[Writer, int]:
    """A writer, and in how many steps it has learned; the rate falls to nothing."""
    torch.manual_seed(seed)
    writer = Writer(len(data.tokenizer), width)
    optimizer = torch.optim.Adam(writer.parameters(), lr=3e-3)
    batches, step, begun = Batches(data.train, 128, seed), 0, time.monotonic()
    while (progress := (time.monotonic() - begun) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * (1 - progress)
        x = batches[step].x0
        loss = writer.nats(x).sum() / (x != PAD).sum()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(writer.parameters(), 1.0)
        optimizer.step()
        if step % 500 == 0:
            print(f"step {step}, {progress:.0%}: {loss.item():.3f} nats", file=sys.stderr)
        step += 1
    return writer, step


@torch.no_grad()
def written(writer: Writer, tokenizer: Tokenizer, n: int, longest: int, seed: int) -> list[str]:
    """New strings; what has not ended after so many tokens is left out."""
    generator, memory = torch.Generator().manual_seed(seed), None
    x = torch.full((n, 1), BEGIN)
    rows = []
    for _ in range(longest):
        logits, memory = writer(x, memory)
        x = logits[:, -1].double().softmax(-1).multinomial(1, generator=generator)
        rows.append(x)
    ids = torch.cat(rows, 1)
    ended = (ids == EOS).any(1)
    return [tokenizer.decode(row) for row in ids[ended].tolist()]


@torch.no_grad()
def nats_of(writer: Writer, tokenizer: Tokenizer, texts: Sequence[str]) -> np.ndarray:
    """(n,) a token, the end included."""
    x = collate([np.array(tokenizer.encode(text)) for text in texts])
    return (writer.nats(x).sum(1) / (x != PAD).sum(1)).numpy()


def own_nats(
    writer: Writer, tokenizer: Tokenizer, texts: Mapping[str, Sequence[str]]
) -> dict[str, Estimate]:
    """Of kinds of what it wrote."""
    return {
        kind: statistics.bootstrap_mean(nats_of(writer, tokenizer, own))
        for kind, own in texts.items()
    }


def repaired(model: Model, broken: Sequence[str], seed: int) -> dict[str, list[str | None]]:
    """What each repairer makes of them."""
    tokens = model.tokenizer.tokens[EOS + 1 :]
    blind = [np.random.default_rng([seed, number]) for number in range(len(broken))]
    return {
        "model": [found.result for found in model.repair(broken, seed=seed)],
        "any_edit": [any_edit(text, tokens, rng) for text, rng in zip(broken, blind, strict=True)],
    } | {name: list(map(repair, broken)) for name, repair in baselines().items()}


def measures(
    broken: Sequence[str], made: Sequence[str | None], writer: Writer, tokenizer: Tokenizer
) -> dict[str, Estimate]:
    """Of one repairer; what has tokens that the LSTM does not know is judged by the others."""
    pairs = [(old, new) for old, new in zip(broken, made, strict=True) if new is not None]
    apart = [distance(SmilesTokenizer.split(old), SmilesTokenizer.split(new)) for old, new in pairs]
    known = [new for _, new in pairs if set(SmilesTokenizer.split(new)) <= set(tokenizer.tokens)]
    return {
        "repair_rate": statistics.share([new is not None for new in made]),
        "one_edit": statistics.share([*(n == 1 for n in apart), *[False] * made.count(None)]),
        "edit_distance": statistics.bootstrap_mean(apart),
        "nats": statistics.bootstrap_mean(nats_of(writer, tokenizer, known)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", default="molecules")
    parser.add_argument("--seconds", type=float, default=900, help="that the LSTM learns")
    parser.add_argument("--width", type=int, default=256, help="of the LSTM")
    parser.add_argument("--samples", type=int, default=4000, help="that the LSTM writes")
    parser.add_argument("-n", type=int, default=500, help="broken ones to repair, at most")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    data = prepare(DataConfig(file="zinc250k"), given.seed)
    writer, steps = learned(data, given.seconds, given.width, given.seed)
    new = written(writer, data.tokenizer, given.samples, data.max_length, given.seed)
    fine = [canonical_or_none(text) is not None for text in new]
    valid = list(compress(new, fine))
    broken = [text for text, parses in zip(new, fine, strict=True) if text and not parses]
    broken = broken[: given.n]
    model = redraft.load(given.model, device="cpu")
    by = repaired(model, broken, given.seed)
    by_repairer = plain(
        {name: measures(broken, made, writer, data.tokenizer) for name, made in by.items()}
    )
    generator = {
        "what": "an LSTM that writes token by token",
        **{name: getattr(given, name) for name in ("width", "seconds", "seed")},
        **{"steps": steps, "samples": len(new)},
        **plain({"nats": own_nats(writer, data.tokenizer, {"valid": valid, "broken": broken})}),
    }
    found = results.result(
        model.trained,
        "repair-generated",
        len(broken),
        {"validity": statistics.share(fine)},
        generator=generator,
        by_repairer=by_repairer,
        examples=[
            dict(zip(["written", *by], row, strict=True))
            for row in zip(broken[:12], *by.values(), strict=False)
        ],
    )
    given.out.mkdir(parents=True, exist_ok=True)
    write_json(given.out / "repair-generated.json", found)
    print(json.dumps(found["by_repairer"], indent=1))


if __name__ == "__main__":
    sys.exit(outcome(main))
