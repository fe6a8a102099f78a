"""The ER bound in a plain PyTorch loop, on scikit-learn's digits, with a look through the lens as it goes.

Run it, a few seconds on a laptop core, with

    python examples/plain_loop.py

and with `--collapse` to see what the lens says of a loss that only pulls views together.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from entrec import VonMisesFisher
from entrec.lens import Verdict, diagnose, look
from entrec.losses import ERLoss


def views(images: Tensor) -> tuple[Tensor, Tensor]:
    """Two views of images: each lacks a third of the pixels, and the rest are noisy."""
    first, second = ((images + 0.1 * torch.randn_like(images)) * (torch.rand_like(images) > 1 / 3) for _ in range(2))
    return first, second


def distance(z1: Tensor, z2: Tensor) -> Tensor:
    """A loss whose best is one embedding for all."""
    return -cosine_similarity(z1, z2).mean()


def verdict_on(network: nn.Module, images: Tensor) -> Verdict:
    """What two views of images that are not trained on look like."""
    network.eval()
    with torch.no_grad():
        z1, z2 = (network(x) for x in views(images))
    network.train()
    return diagnose(look(z1, z2))


def main() -> None:
    """Train, and say every fifty steps how it goes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--collapse", action="store_true", help="train with the distance of the views alone")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # small tensors: more threads would only wait for each other

    digits = torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 16
    train, held_out = digits[:-400], digits[-400:]
    network = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 64),
    )  # fmt: skip
    loss = distance if options.collapse else ERLoss(VonMisesFisher(kappa=10.0))
    optimiser = torch.optim.Adam(network.parameters(), 2e-3)

    verdict = verdict_on(network, held_out)
    for step in range(1, options.steps + 1):
        z1, z2 = (network(x) for x in views(train[torch.randint(len(train), (256,))]))
        value = loss(z1, z2)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        if step % 50 == 0 or step == options.steps:
            verdict = verdict_on(network, held_out)
            print(f"step {step}  loss {value.item():.3f}  {verdict.name}")
    print(verdict.title, *verdict.because, *verdict.remedies, sep="\n  ")


if __name__ == "__main__":
    main()
