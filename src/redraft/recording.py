"""CUDA graphs: what a step asks of the GPU, recorded once for each shape of batch, then replayed.

A step is a few hundred small kernels; asking for them one by one takes the host longer than the GPU
needs to run them. A recorded step is asked for as a whole.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from redraft.batches import Batch

Outputs = dict[str, Tensor]
Step = Callable[[Batch], Outputs]


@dataclass(frozen=True)
class Recording:
    graph: torch.cuda.CUDAGraph
    batch: Batch
    """Whose tensors the graph reads."""
    outputs: Outputs
    """Which it writes."""

    def replay(self, batch: Batch) -> Outputs:
        for fixed, given in zip(tensors(self.batch), tensors(batch), strict=True):
            fixed.copy_(given)
        self.graph.replay()
        return {name: value.clone() for name, value in self.outputs.items()}


class Recorder:
    """Runs steps, and plays back those whose shape it has met before.

    The first batch of a shape is run as it is, which lets libraries choose their kernels; the
    second is recorded. All recordings share their working memory, since they never overlap.
    """

    def __init__(self, generator: torch.Generator):
        self.generator = generator
        self.recordings: dict[Hashable, Recording | None] = {}
        self.stream, self.memory = torch.cuda.Stream(), torch.cuda.graph_pool_handle()

    def __call__(self, step: Step, batch: Batch, phase: Hashable) -> Outputs:
        key = (batch.x0.shape, batch.padded, phase)
        if key not in self.recordings:
            self.recordings[key] = None
            return step(batch)
        recording = self.recordings[key] or self.record(step, batch)
        self.recordings[key] = recording
        return recording.replay(batch)

    def record(self, step: Step, batch: Batch) -> Recording:
        x0, weight, tokens = (value.clone() for value in tensors(batch))
        fixed = replace(batch, x0=x0, weight=weight, tokens=tokens)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        torch.cuda.synchronize()
        with torch.cuda.stream(self.stream):
            graph.capture_begin(pool=self.memory)
            try:
                outputs = step(fixed)
            finally:
                graph.capture_end()
        return Recording(graph, fixed, outputs)


def tensors(batch: Batch) -> list[Tensor]:
    return [x for x in (batch.x0, batch.weight, batch.tokens) if isinstance(x, Tensor)]
