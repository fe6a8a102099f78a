"""To look at a network in training, and leave it as it was."""

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import numpy as np
import torch
from lightning.pytorch.utilities.seed import isolate_rng
from torch import nn

SEED = 0


@contextmanager
def undisturbed(module: nn.Module) -> Iterator[None]:
    """Eval mode, no gradients, the same random numbers every time; afterwards all is as it was."""
    modes = [(part, part.training) for part in module.modules()]
    on_cuda = getattr(module, "device", torch.device("cpu")).type == "cuda"
    # What was compiled for training would be compiled again for another mode and other sizes.
    stance = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
    with torch.no_grad(), isolate_rng(include_cuda=on_cuda), stance:
        random.seed(SEED)
        np.random.seed(SEED)
        torch.default_generator.manual_seed(SEED)
        if on_cuda:
            torch.cuda.manual_seed(SEED)
        module.eval()
        try:
            yield
        finally:
            for part, mode in modes:
                part.training = mode
