"""D3PM-Reinforce: noise and denoiser descend together on one surrogate, at every step.

    (1/N) sum_b [ S_b + sg(S_b) sum_l log q_phi(x_t | x_0) ] + lambda_T KL(Qbar_T || uniform)

S_b is the loss of sequence b summed over its tokens, N the tokens of the batch. Gradients of phi
also pass through the posteriors. The noise may make its own task trivial: that is its point.
"""

from redraft.batches import Batch
from redraft.methods.leader import kernel_metrics, log_prob, regularisation
from redraft.methods.method import Method, Metrics, Player, descend
from redraft.noise.semantic import SemanticProcess
from redraft.tokenizers.base import PAD


class Reinforce(Method):
    process: SemanticProcess
    leader: Player

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.leader = Player(self.process.scores.parameters(), self.config.leader.optimizer)

    def step(self, batch: Batch, progress: float) -> Metrics:
        self.process.commit(self.denoiser.embeddings)
        noise = self.process.draft(self.denoiser.embeddings)
        draws = self.draw(noise, batch.x0)
        S = self.losses(noise, batch, draws).sum(-1)  # (B,)
        N = (batch.x0 != PAD).sum()
        surrogate = (S + S.detach() * log_prob(noise, batch.x0, draws)).sum() / N
        loss = surrogate * batch.weight + regularisation(noise, self.config.leader)
        norm, leader_norm = descend(loss, [self.player, self.leader], progress)
        self.steps_done += 1
        metrics: Metrics = {"loss": S.detach().sum() / N, "gradient_norm": norm}
        if self.steps_done % self.config.leader.block == 0:
            metrics |= kernel_metrics(noise) | {"leader/gradient_norm": leader_norm}
        return metrics
