"""CUDA graphs: what a piece of work asks of the GPU, recorded once for each shape, then replayed.

A step is a few hundred small kernels; asking for them one by one takes the host longer than the GPU
needs to run them. A recorded step is asked for as a whole.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Outputs = dict[str, Tensor]
Work = Callable[..., Outputs]
"""From tensors to named tensors; what it does depends on their shapes alone."""


def directly(work: Work, inputs: Sequence[Tensor], kind: Hashable = None) -> Outputs:
    """Without a recording."""
    return work(*inputs)


@dataclass(frozen=True)
class Recording:
    graph: torch.cuda.CUDAGraph
    inputs: Sequence[Tensor]
    """Which the graph reads."""
    outputs: Outputs
    """Which it writes."""

    def replay(self, inputs: Sequence[Tensor]) -> Outputs:
        for fixed, given in zip(self.inputs, inputs, strict=True):
            fixed.copy_(given)
        self.graph.replay()
        return {name: value.clone() for name, value in self.outputs.items()}


class Recorder:
    """Does work, and plays back what it has done before with inputs of the same shapes.

    The first time, work is done as it is, which lets libraries choose their kernels; the second
    time it is recorded. All recordings share their memory, since they never overlap.
    """

    def __init__(self, generator: torch.Generator):
        self.generator = generator
        self.recordings: dict[Hashable, Recording | None] = {}
        self.stream, self.memory = torch.cuda.Stream(), torch.cuda.graph_pool_handle()

    def __call__(self, work: Work, inputs: Sequence[Tensor], kind: Hashable = None) -> Outputs:
        key = (kind, *(x.shape for x in inputs))
        if key not in self.recordings:
            self.recordings[key] = None
            return work(*inputs)
        recording = self.recordings[key] or self.record(work, inputs)
        self.recordings[key] = recording
        return recording.replay(inputs)

    def forget(self) -> None:
        """Their memory, tens of gigabytes, is for what comes next, when all have been played."""
        torch.cuda.synchronize()  # PyTorch waits for the stream that recorded, not for replays
        self.recordings.clear()
        torch.cuda.empty_cache()

    def record(self, work: Work, inputs: Sequence[Tensor]) -> Recording:
        fixed = [x.clone() for x in inputs]
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # what work without a recording has left is not open to one
        with torch.cuda.stream(self.stream):
            graph.capture_begin(pool=self.memory)
            try:
                outputs = work(*fixed)
            finally:
                graph.capture_end()
        return Recording(graph, fixed, outputs)
