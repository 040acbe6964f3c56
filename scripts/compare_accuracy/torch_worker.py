"""Worker: trains and evaluates with PyTorch on the batches it receives."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from baselines.serve import serve
from baselines.torch_models import MODELS, torch_name


class Trainer:
    """A network and its update rule, equivalent to edgeddl's."""

    def prepare(
        self,
        model: str,
        parameters: dict[str, np.ndarray],
        threads: int,
        momentum: float,
        nesterov: bool,
        weight_decay: float,
        label_smoothing: float,
    ) -> None:
        torch.set_num_threads(threads)
        self.model = MODELS[model]()
        given = {torch_name(name): torch.tensor(array) for name, array in parameters.items()}
        own = dict(self.model.named_parameters())
        if given.keys() != own.keys():
            raise ValueError(f"the parameters differ: {sorted(given.keys() ^ own.keys())}")
        self.model.load_state_dict(given, strict=False)  # without running statistics
        self.model.to(memory_format=torch.channels_last)
        self.label_smoothing = label_smoothing
        # as in edgeddl: no weight decay on biases and batch normalisation, which have one axis
        groups = [
            {"params": [p for p in own.values() if p.ndim > 1], "weight_decay": weight_decay},
            {"params": [p for p in own.values() if p.ndim == 1], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.SGD(groups, 1.0, momentum=momentum, nesterov=nesterov)

    def train(
        self,
        micro_batches: list[tuple[np.ndarray, np.ndarray]],
        images: int,
        learning_rate: float,
    ) -> float:
        """Run one step and return the mean loss over its images."""
        self.model.train()
        self.optimizer.zero_grad()
        total = 0.0
        for x, t in micro_batches:
            smoothing = self.label_smoothing
            loss = F.cross_entropy(self.model(_images(x)), _labels(t), label_smoothing=smoothing)
            (loss * (len(t) / images)).backward()
            total += float(loss) * len(t) / images
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.step()
        return total

    def evaluate(self, x: np.ndarray, t: np.ndarray) -> tuple[float, int]:
        """Return the sum of the losses and the number of correct predictions."""
        self.model.eval()
        with torch.no_grad():
            logits, labels = self.model(_images(x)), _labels(t)
            loss = F.cross_entropy(logits, labels, reduction="sum")
            return float(loss), int((logits.argmax(1) == labels).sum())


def _images(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(x).to(memory_format=torch.channels_last)


def _labels(t: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(t).long()


if __name__ == "__main__":
    trainer = Trainer()
    serve({"prepare": trainer.prepare, "train": trainer.train, "evaluate": trainer.evaluate})
