"""D3PM-Reinforce: noise and denoiser descend together on one surrogate, at every step.

    (1/N) sum_b [ S_b + sg(S_b) sum_l log q_phi(x_t | x_0) ] + lambda_T KL(Qbar_T || uniform)

S_b is the loss of sequence b summed over its tokens, N the tokens of the batch. Gradients of phi
also pass through the posteriors. The noise may make its own task trivial: that is its point.
"""

from torch import Tensor

from redraft.batches import Batch
from redraft.methods.leader import kernel_metrics, log_prob, regularisation
from redraft.methods.method import Method, Metrics, Player
from redraft.noise.semantic import SemanticProcess
from redraft.objective import token_mean


class Reinforce(Method):
    process: SemanticProcess
    leader: Player

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.leader = Player(self.process.scores, self.config.leader.optimizer)

    @property
    def players(self) -> list[Player]:
        return [self.player, self.leader]

    def step(self, batch: Batch, progress: float) -> Metrics:
        metrics = self.descend(batch, progress)
        if self.steps_done % self.config.leader.block == 0:
            metrics |= kernel_metrics(self.process.draft(self.denoiser.embeddings))
        self.note_confusions()
        return metrics

    def objective(self, batch: Batch) -> tuple[Tensor, Tensor]:
        noise = self.process.draft(self.denoiser.embeddings)
        self.process.commit(self.denoiser.embeddings, noise)
        draws = self.pose(noise, batch.x0)
        losses = self.losses(noise, batch, self.rehearsed(noise, batch, draws))
        S = losses.sum(-1)  # (B,)
        surrogate = S + S.detach() * log_prob(noise, batch.x0, draws)
        restraint = regularisation(noise, self.config.leader) / batch.parts
        surrogate = token_mean(surrogate, batch.x0, batch.tokens) * batch.weight + restraint
        return surrogate, token_mean(losses, batch.x0, batch.tokens)
