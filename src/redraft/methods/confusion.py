"""The denoiser trains on its own mistakes: a control that learns the noise without a game.

for each block of N steps:
    commit M, made from what the denoiser has confused so far
    N times: theta <- theta - eta grad L^F(theta; M held fixed)
    on a held-out batch: corrupt, predict, and note what is taken for what
"""

import torch
from torch import Tensor

from redraft.batches import Batch
from redraft.methods.leader import kernel_metrics, warn_of_collapse
from redraft.methods.method import Method, Metrics
from redraft.noise.confusion import ConfusionProcess
from redraft.objective import predict


class Confusion(Method):
    process: ConfusionProcess

    def step(self, batch: Batch, progress: float) -> Metrics:
        block, past = divmod(self.steps_done, self.config.leader.block)
        metrics: Metrics = dict(kernel_metrics(self.process.commit())) if past == 0 else {}
        metrics |= self.descend(batch, progress)
        if past == self.config.leader.block - 1:
            (part,) = self.parts(self.held_out[block])
            self.run(self.observe, part, "leader")
        return metrics

    def notice(self, metrics: dict[str, float]) -> None:
        warn_of_collapse(metrics)

    @torch.no_grad()
    def observe(self, batch: Batch) -> dict[str, Tensor]:
        """What the denoiser makes of a held-out batch, by noise level."""
        for draw in self.draw(self.process, batch.x0):
            with self.autocast():
                log_p = predict(self.predictor, draw.xt, draw.t, batch.padded)
            self.process.observe(batch.x0, log_p.exp(), draw.t, self.config.noise.forget)
        return {}
