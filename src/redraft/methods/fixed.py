"""Methods whose noise is not learned: MDLM, D3PM-Uniform, and the fixed semantic control."""

from redraft.batches import Batch
from redraft.methods.method import Method, Metrics
from redraft.noise.semantic import SemanticProcess


class Fixed(Method):
    """The denoiser alone learns."""

    def step(self, batch: Batch, progress: float) -> Metrics:
        return self.descend(batch, progress)


class FixedSemantic(Method):
    """The kernel is no player, but follows the denoiser's embeddings from block to block."""

    process: SemanticProcess

    def step(self, batch: Batch, progress: float) -> Metrics:
        if self.steps_done % self.config.leader.block == 0:
            self.process.commit(self.denoiser.embeddings)
        return self.descend(batch, progress)
