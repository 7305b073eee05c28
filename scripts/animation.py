"""docs/redraft.svg: a molecule from noise, by the model that comes with the package.

python scripts/animation.py [SEED]     the first valid sample from that seed on; 0 by default
"""

import sys
from itertools import count
from pathlib import Path

import redraft
from redraft.report.animation import animation
from redraft.report.structure import structure
from redraft.sampler import Trace

OUT = Path(__file__).parents[1] / "docs" / "redraft.svg"


def main(seed: int, length: int = 26) -> None:
    model = redraft.load("molecules")
    for own in count(seed):
        frames = Trace()
        (smiles,) = model.sample(1, length=length, seed=own, renew=0, callback=frames)
        if structure(smiles) is not None:
            break
    title = f"A molecule is drafted from noise in {len(frames)} steps: {smiles}"
    OUT.write_text(animation(frames, model.tokenizer.tokens, structure, title), encoding="utf-8")
    print(f"{smiles}, seed {own}; written to {OUT}, {OUT.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
