"""Repair of what another generator got wrong: an LSTM that writes SMILES, and its broken ones.

    python scripts/repair_generated.py OUT [--steps 12000] [--samples 4000] [-n 500]

The LSTM learns ZINC-250k token by token, without rules or noise, as generators of molecules have
long been made. What it writes and does not parse is repaired by the model of the package, by a
blind search and by rules. What it meant nobody knows, so there is no exact recovery; but the LSTM
says how likely it finds any string, and so judges what was made of its own. Its favourite is the
likeliest of all valid strings an edit away: the best that a repair by one edit could be.

OUT/repair-generated.json has, as metrics of the model and of the others:

    repair_rate      share that is valid now
    one_edit         share that is valid now and one token away from what was written
    favourite        share that is the LSTM's favourite, of those that have one
    edit_distance    tokens between what was written and its repair, over the repaired
    nats             of a token, by the LSTM: of results, over the repaired; of the broken; of what
                     it wrote that was valid
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
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
from redraft.experiments.repair import attempts, plain
from redraft.folder import write_json
from redraft.repair import Ids, distance, edits_of
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


def learned(data: Dataset, steps: int, width: int, seed: int) -> Writer:
    """The rate falls to nothing."""
    torch.manual_seed(seed)
    writer, batches = Writer(len(data.tokenizer), width), Batches(data.train, 128, seed)
    optimizer = torch.optim.Adam(writer.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    for step in range(steps):
        x = batches[step].x0
        loss = writer.nats(x).sum() / (x != PAD).sum()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(writer.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 500 == 0:
            print(f"step {step} of {steps}: {loss.item():.3f} nats", file=sys.stderr)
    return writer


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
def nats_of(
    writer: Writer, tokenizer: Tokenizer, texts: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """(n,) of each string, its end included, and (n,) its tokens."""
    x = collate([np.array(tokenizer.encode(text)) for text in texts])
    return writer.nats(x).sum(1).numpy(), (x != PAD).sum(1).numpy()


def a_token(writer: Writer, tokenizer: Tokenizer, texts: Sequence[str]) -> Estimate:
    """Nats of a token, a mean over strings."""
    nats, tokens = nats_of(writer, tokenizer, texts)
    return statistics.bootstrap_mean(nats / tokens)


def favourite(writer: Writer, tokenizer: Tokenizer, text: str) -> str | None:
    """The likeliest of all valid strings an edit away."""
    near = map(tokenizer.decode, an_edit_away(tuple(tokenizer.ids(text)), len(tokenizer)))
    valid = sorted({other for other in near if canonical_or_none(other) is not None})
    return valid[nats_of(writer, tokenizer, valid)[0].argmin()] if valid else None


def an_edit_away(ids: Ids, V: int) -> Iterator[Ids]:
    """A token replaced, inserted or left out, in no order."""
    scores = np.zeros((2 * len(ids) + 1, V))
    scores[:, [PAD, MASK]] = scores[::2, EOS] = -np.inf  # nothing comes where nothing was
    return (edit for edit, _ in edits_of({ids: 0.0}, [scores]))


def measures(
    broken: Sequence[str],
    made: Sequence[str | None],
    best: Sequence[str | None],
    writer: Writer,
    tokenizer: Tokenizer,
) -> dict[str, Estimate]:
    """Of one repairer; what has tokens that the LSTM does not know is judged by the others."""
    pairs = [(old, new) for old, new in zip(broken, made, strict=True) if new is not None]
    apart = [distance(SmilesTokenizer.split(old), SmilesTokenizer.split(new)) for old, new in pairs]
    known = [new for _, new in pairs if set(SmilesTokenizer.split(new)) <= set(tokenizer.tokens)]
    chosen = [new == other for new, other in zip(made, best, strict=True) if other is not None]
    return {
        "repair_rate": statistics.share([new is not None for new in made]),
        "one_edit": statistics.share([*(n == 1 for n in apart), *[False] * made.count(None)]),
        "favourite": statistics.share(chosen),
        "edit_distance": statistics.bootstrap_mean(apart),
        "nats": a_token(writer, tokenizer, known),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", default="molecules")
    parser.add_argument("--steps", type=int, default=12_000, help="of 128 that the LSTM learns")
    parser.add_argument("--width", type=int, default=256, help="of the LSTM")
    parser.add_argument("--samples", type=int, default=4000, help="that the LSTM writes")
    parser.add_argument("-n", type=int, default=500, help="broken ones to repair, at most")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    data = prepare(DataConfig(file="zinc250k"), given.seed)
    writer = learned(data, given.steps, given.width, given.seed)
    new = written(writer, data.tokenizer, given.samples, data.max_length, given.seed)
    fine = [canonical_or_none(text) is not None for text in new]
    valid = list(compress(new, fine))
    broken = [text for text, parses in zip(new, fine, strict=True) if text and not parses]
    broken = broken[: given.n]
    model = redraft.load(given.model, device="cpu")
    best = [favourite(writer, data.tokenizer, text) for text in broken]
    tried = list(attempts(model, broken, given.seed))
    by = {name: [made[name] for made in tried] for name in tried[0]} | {"favourite": best}
    told = {name: measures(broken, own, best, writer, data.tokenizer) for name, own in by.items()}
    found = results.result(
        model.trained,
        "repair-generated",
        len(broken),
        told.pop("model"),
        generator={
            "what": "an LSTM that writes token by token",
            **{name: getattr(given, name) for name in ("width", "steps", "seed")},
            "samples": len(new),
            "validity": statistics.share(fine).to_dict(),
            "nats": {
                "valid": a_token(writer, data.tokenizer, valid).to_dict(),
                "broken": a_token(writer, data.tokenizer, broken).to_dict(),
            },
        },
        others=plain(told),
        examples=[
            dict(zip(["written", *by], row, strict=True))
            for row in zip(broken[:12], *by.values(), strict=False)
        ],
    )
    given.out.mkdir(parents=True, exist_ok=True)
    write_json(given.out / "repair-generated.json", found)
    print(json.dumps({"model": found["metrics"], **found["others"]}, indent=1))


if __name__ == "__main__":
    sys.exit(outcome(main))
