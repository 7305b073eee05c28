"""The denoiser trains on its own mistakes: a control that learns the noise without a game.

for each block of N steps:
    commit M, made from what the denoiser has confused so far
    N times: theta <- theta - eta grad L^F(theta; M held fixed)
    on a held-out batch: corrupt, predict, and note what is taken for what
"""

from redraft.batches import Batch
from redraft.methods.leader import kernel_metrics
from redraft.methods.method import Method, Metrics
from redraft.noise.semantic import SemanticProcess


class Confusion(Method):
    process: SemanticProcess

    def step(self, batch: Batch, progress: float) -> Metrics:
        metrics: Metrics = {}
        if self.steps_done % self.config.leader.block == 0:
            drafted = self.process.draft(self.denoiser.embeddings)
            self.process.commit(self.denoiser.embeddings, drafted)
            metrics |= kernel_metrics(drafted)
        metrics |= self.descend(batch, progress)
        self.note_confusions()
        return metrics
