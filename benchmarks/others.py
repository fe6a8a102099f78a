"""What people train with today, beside ours: the encoder alone, a plain script and lightly's example, on one GPU.

    python benchmarks/others.py --out FILE.json                    some minutes; lightly's rows need the bench extra
    python benchmarks/others.py --quick --device cpu --workers 2   tries the script and is no benchmark

ResNet-18 with a stem for small images, two views of random images of 32 pixels. A sample is an image with its two views.
"""

import argparse
import gc
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset
from torchvision.models import resnet18

from entrec.bench import page
from entrec.bench.bare import Call, Way, bare_rate
from entrec.bench.results import Machine, machine, write
from entrec.bench.table import number
from entrec.bench.timing import milliseconds
from entrec.bench.train import random_source, settings
from entrec.bench.trained import NEVER, trained
from entrec.files import require_writable
from entrec.training.settings import settings as run_settings

_SIDE = 32
_IMAGES = 50_000  # on the card, as many as CIFAR-10 has
_QUICK = 32  # by which batches are divided


@dataclass(frozen=True)
class Chosen:
    """What the command line asks for."""

    device: torch.device
    steps: int
    workers: int
    quick: bool

    @property
    def on_gpu(self) -> bool:
        """Whether the device is one."""
        return self.device.type == "cuda"

    @property
    def training(self) -> int:
        """Steps of ours: the rate is the later half's, and the first steps compile."""
        return max(10, 5 * self.steps)


@dataclass(frozen=True)
class Row:
    """Samples per second, or why there are none."""

    group: str
    what: str
    batch: int
    rate: float | None
    note: str = ""


@dataclass(frozen=True)
class Benchmark:
    """Everything that was measured, and the command that did."""

    command: str
    machine: Machine
    quick: bool
    rows: list[Row]


# The encoder alone.


def bare(way: Way, batch: int, chosen: Chosen) -> float:
    """Forward and backward on views that are there: no views, no head, no loss, no optimiser."""
    calls = [Call((2 * batch, 3, _SIDE, _SIDE), True)]
    repeats = min(10, chosen.steps)
    rate = bare_rate("resnet18", calls, batch, way=way, device=chosen.device, bf16=True, repeats=repeats)
    assert rate is not None  # only a capture is ever refused
    return rate


# A plain script, as one writes it with PyTorch alone: eager, bf16, channels last, images and views on the card.


def encoder() -> nn.Module:
    """ResNet-18 of torchvision's without classifier, with the stem for small images."""
    model: nn.Module = resnet18()
    model.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    model.maxpool, model.fc = nn.Identity(), nn.Identity()
    return model


def mlp(width: int, hidden: int, out: int) -> nn.Module:
    """Projector or predictor."""
    hidden_layer = (nn.Linear(width, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True))
    return nn.Sequential(*hidden_layer, nn.Linear(hidden, out))


def batches(batch: int, device: torch.device) -> Iterator[Tensor]:
    """Batches of images on the device, uint8, in a new order each epoch."""
    images = torch.randint(0, 256, (_IMAGES, 3, _SIDE, _SIDE), dtype=torch.uint8, device=device)
    while True:
        for chosen in torch.randperm(_IMAGES, device=device)[: _IMAGES // batch * batch].split(batch):
            yield images[chosen]


def two_views(images: Tensor) -> Tensor:
    """Both views of images (k, 3, s, s), one after the other (2k, 3, s, s), each with a crop, flip and colours of its own."""
    x = images.repeat(2, 1, 1, 1).float().div_(255)

    def uniform(low: float, high: float) -> Tensor:
        return torch.empty(len(x), device=x.device).uniform_(low, high)

    def grey(x: Tensor) -> Tensor:
        return (0.299 * x[:, :1]).add_(x[:, 1:2], alpha=0.587).add_(x[:, 2:], alpha=0.114)

    area, aspect = uniform(0.2, 1), uniform(-0.2877, 0.2877).exp()  # of 3/4 to 4/3
    width, height = (area * aspect).sqrt().clamp_(max=1), (area / aspect).sqrt().clamp_(max=1)
    theta = torch.zeros(len(x), 2, 3, device=x.device)
    theta[:, 0, 0] = width * uniform(-1, 1).sign()  # the flip
    theta[:, 1, 1] = height
    theta[:, 0, 2], theta[:, 1, 2] = (1 - width) * uniform(-1, 1), (1 - height) * uniform(-1, 1)
    grid = functional.affine_grid(theta, list(x.shape), align_corners=False)
    x = functional.grid_sample(x, grid, padding_mode="reflection", align_corners=False)
    brightness, contrast, saturation = (uniform(0.6, 1.4)[:, None, None, None] for _ in range(3))
    x = (x * brightness).clamp_(0, 1)
    x = torch.lerp(grey(x).mean(dim=(1, 2, 3), keepdim=True), x, contrast).clamp_(0, 1)
    saturation = saturation * (uniform(0, 1) > 0.2)[:, None, None, None]  # a fifth is grey
    x = torch.lerp(grey(x), x, saturation).clamp_(0, 1)
    return x.sub_(0.5).div_(0.29).contiguous(memory_format=torch.channels_last)


def nt_xent(z: Tensor, temperature: float = 0.1) -> Tensor:
    """Of projections (2k, d), both views of a sample k rows apart."""
    z = functional.normalize(z)
    logits = (z @ z.T / temperature).fill_diagonal_(-torch.inf)
    return functional.cross_entropy(logits, torch.arange(len(z), device=z.device).roll(len(z) // 2))


def plain_simclr(images: Iterator[Tensor], device: torch.device) -> Callable[[], None]:
    """A step of SimCLR."""
    model = nn.Sequential(encoder(), mlp(512, 512, 128)).to(device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)

    def step() -> None:
        views = two_views(next(images))
        with torch.autocast(device.type, torch.bfloat16):
            z = model(views)
        loss = nt_xent(z.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def plain_byol(images: Iterator[Tensor], device: torch.device) -> Callable[[], None]:
    """A step of BYOL: each view by itself through the student, the teacher an average of it."""
    student = nn.Sequential(encoder(), mlp(512, 1024, 256)).to(device).to(memory_format=torch.channels_last)
    predictor, teacher = mlp(256, 1024, 256).to(device), deepcopy(student).requires_grad_(False)
    parameters = [*student.parameters(), *predictor.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4)

    def step() -> None:
        one, two = two_views(next(images)).chunk(2)
        with torch.autocast(device.type, torch.bfloat16):
            p1, p2 = predictor(student(one)), predictor(student(two))
            with torch.no_grad():
                t1, t2 = teacher(one), teacher(two)
        cosines = functional.cosine_similarity(p1.float(), t2.float()) + functional.cosine_similarity(p2.float(), t1.float())
        loss = 4 - 2 * cosines.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for p, t in zip(student.parameters(), teacher.parameters(), strict=True):
                t.lerp_(p, 0.01)

    return step


def plain(method: Callable[[Iterator[Tensor], torch.device], Callable[[], None]], batch: int, chosen: Chosen) -> float:
    """The plain script's rate; on CUDA the mean over steps in a row, by the host's clock."""
    step = method(batches(batch, chosen.device), chosen.device)
    before, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True
    try:
        took = milliseconds(step, chosen.device, chosen.steps)
    finally:
        torch.backends.cudnn.benchmark = before
    return 1e3 * batch / (took.back_to_back or took.step)


# lightly's example.


class Pictures(Dataset[tuple[Any, int]]):
    """Images as torchvision's CIFAR10 holds them: an array, whose rows become PIL images for the transform."""

    def __init__(self, n: int, transform: Callable[[Image.Image], Any]) -> None:
        self.images = np.random.default_rng(0).integers(0, 256, (n, _SIDE, _SIDE, 3), dtype=np.uint8)
        self.transform = transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[Any, int]:
        return self.transform(Image.fromarray(self.images[i])), 0


def lightly_simclr(precision: Literal["32-true", "bf16-mixed"], batch: int, chosen: Chosen) -> float:
    """SimCLR as in lightly's example, with PyTorch Lightning, after an epoch of warm-up."""
    import pytorch_lightning as lightning
    from lightly.transforms.simclr_transform import SimCLRTransform

    # The clock runs while the workers' queues are full: from so many steps within an epoch until as many before its end.
    queued = 0 if chosen.quick else 2 * chosen.workers
    data = Pictures((chosen.steps + 2 * queued) * batch, SimCLRTransform(input_size=_SIDE, gaussian_blur=0.0))
    workers: dict[str, Any] = {"num_workers": chosen.workers, "persistent_workers": chosen.workers > 0}
    loader = DataLoader(data, batch, shuffle=True, drop_last=True, pin_memory=chosen.on_gpu, **workers)
    begin, end = len(loader) + queued, len(loader) + queued + chosen.steps
    moments: dict[int, float] = {}

    def note(trainer: lightning.Trainer, *_: object) -> None:
        if trainer.global_step in (begin, end):
            if chosen.on_gpu:
                torch.cuda.synchronize()
            moments[trainer.global_step] = time.perf_counter()

    lightning.Trainer(
        accelerator="gpu" if chosen.on_gpu else "cpu", devices=1, precision=precision,
        max_steps=end, callbacks=[lightning.callbacks.LambdaCallback(on_train_batch_end=note)],
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    ).fit(_lightlys_module(), loader)  # fmt: skip
    return chosen.steps * batch / (moments[end] - moments[begin])


def _lightlys_module() -> Any:
    """The example's, with our stem and head in the place of ImageNet's stem and a head of 2048."""
    import pytorch_lightning as lightning
    from lightly.loss import NTXentLoss
    from lightly.models.modules import SimCLRProjectionHead

    class SimCLR(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.backbone, self.head, self.criterion = encoder(), SimCLRProjectionHead(512, 512, 128), NTXentLoss()

        def training_step(self, batch: Any, _: int) -> Any:
            (x0, x1), _labels = batch
            z0, z1 = (self.head(self.backbone(x)) for x in (x0, x1))
            return self.criterion(z0, z1)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.06)

    return SimCLR()


# Ours.


def ours(method: str, batch: int, chosen: Chosen) -> float:
    """`entrec train` on images in memory, as `entrec bench train` measures it."""
    steps, device = chosen.training, chosen.device.type  # where it is "cuda", runs have bf16 unasked
    found = settings(method, (batch,), _SIDE, None, device, steps, backbone="resnet18", er=False, precision="bf16")
    images = 4 * batch if chosen.quick else max(_IMAGES // batch, 4) * batch
    epochs = max(3, -(-steps * batch // images))
    given = {"batch_size": batch, "epochs": epochs, "evaluate_every": NEVER, "scores": False}
    given |= {key: value for key, value in found.run.items() if key != "method"}
    return trained(run_settings(method, given), random_source(images, _SIDE), chosen.device).rate


Rate = Callable[[int, Chosen], float]  # samples per second at a size of a batch
CONTESTANTS: tuple[tuple[str, str, int, Rate], ...] = (
    ("bare", "encoder alone, eager, bf16", 512, partial(bare, "eager")),
    ("bare", "encoder alone, eager, bf16", 128, partial(bare, "eager")),
    ("bare", "encoder alone, compiled, bf16", 512, partial(bare, "compiled")),
    ("plain", "plain script, SimCLR, bf16", 1024, partial(plain, plain_simclr)),
    ("plain", "plain script, BYOL, bf16", 1024, partial(plain, plain_byol)),
    ("plain", "plain script, BYOL, bf16", 128, partial(plain, plain_byol)),
    ("lightly", "lightly's example, SimCLR, fp32", 512, partial(lightly_simclr, "32-true")),
    ("lightly", "lightly's example, SimCLR, bf16", 512, partial(lightly_simclr, "bf16-mixed")),
    ("ours", "entrec train, SimCLR, bf16", 512, partial(ours, "simclr")),
    ("ours", "entrec train, SimCLR, bf16", 1024, partial(ours, "simclr")),
    ("ours", "entrec train, BYOL, bf16", 1024, partial(ours, "byol")),
    ("ours", "entrec train, BYOL, bf16", 128, partial(ours, "byol")),
)
GROUPS = tuple(dict.fromkeys(group for group, *_ in CONTESTANTS))


def measure(group: str, what: str, batch: int, find: Rate, chosen: Chosen) -> Row:
    """One row; what goes wrong is said in it, and leaves the others."""
    batch = batch // _QUICK if chosen.quick else batch
    rate, note = None, ""
    try:
        rate = find(batch, chosen)
    except Exception as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        missing = group == "lightly" and isinstance(error, ImportError)
        note = f"lightly is not installed ({reason})" if missing else f"failed: {type(error).__name__}: {reason}"
        note = note.replace("|", "/")  # which would end a cell of the page
    gc.collect()
    if chosen.on_gpu:
        torch.cuda.empty_cache()
    return Row(group, what, batch, rate, note)


def table(rows: list[Row]) -> Table:
    """A line for each row."""
    found = page.empty_table()
    found.add_column("what")
    for name in ("batch", "samples/s", "ms a step"):
        found.add_column(name, justify="right")
    for row in rows:
        cells = (Text(row.note), "-") if row.rate is None else (f"{row.rate:,.0f}", number(1e3 * row.batch / row.rate))
        found.add_row(row.what, str(row.batch), *cells)
    return found


def footnotes(found: Benchmark, chosen: Chosen) -> list[str]:
    """What the rows are."""
    notes = {
        "bare": "encoder alone: forward and backward on views that are there, both in one call; no head, loss or optimiser.",
        "plain": "plain script: eager PyTorch, channels last, cudnn.benchmark, SGD, images on the card, both views of a batch "
        "made there by one crop and flip for each row and by its own colours (no hue); dense NT-Xent, BYOL's teacher averaged "
        f"parameter by parameter. The mean over {chosen.steps} or more steps in a row.",
        "lightly": "lightly's example: SimCLR with its transform (no blur), loss and head, PyTorch Lightning and a DataLoader "
        f"with {chosen.workers} workers, on PIL images; our stem, head (512-512-128) and pinned memory, without progress bar, "
        f"logger and checkpoints. The mean over {chosen.steps} steps after an epoch, with the queues full. In fp32, "
        "convolutions use TF32 on CUDA, as is PyTorch's default.",
        "ours": "entrec train: the method's own loss and recipe, with rows and online probe, compiled and captured on CUDA; "
        f"the median over the later half of {chosen.training} or more steps (`entrec bench train`).",
    }
    quick = [f"Tried with --quick, batches of 1/{_QUICK} and {chosen.steps} steps: no benchmark."] if found.quick else []
    groups = {row.group for row in found.rows}
    busy = [page.BUSY] if found.machine.busy else []
    return [*quick, *(note for group, note in notes.items() if group in groups), *busy]


def markdown(found: Benchmark, chosen: Chosen) -> str:
    """All of it as a page."""
    threads = "" if chosen.on_gpu else f", {found.machine.threads} threads"
    no = " (tried, no benchmark)" if found.quick else ""
    title = f"Ours beside others: ResNet-18, views of {_SIDE} pixels{no}\n{found.machine.device}{threads}"
    return page.markdown(title, found.machine, found.command, [table(found.rows)], footnotes(found, chosen))


def arguments() -> argparse.Namespace:
    """The command line, checked before anything is measured."""
    parser = argparse.ArgumentParser(description="Ours beside others.", formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--steps", type=int, default=60, help="that are timed")
    parser.add_argument("--workers", type=int, default=16, help="of lightly's DataLoader")
    parser.add_argument("--out", type=Path, help="FILE.json, with FILE.md beside it; neither may exist")
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=GROUPS, help="groups of rows")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="where")
    parser.add_argument("--quick", action="store_true", help="tiny batches and 3 steps: tries the script, no benchmark")
    given = parser.parse_args()
    if given.steps < 1 or given.workers < 0:
        parser.error("--steps must be at least 1, and --workers at least 0")
    if given.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no CUDA device here: --quick --device cpu tries the script")
    if given.out is not None:
        if given.out.suffix != ".json":
            parser.error(f"--out must end in .json, got {given.out}")
        taken = [str(path) for path in (given.out, given.out.with_suffix(".md")) if path.exists()]
        if taken:
            parser.error(f"there is {' and '.join(taken)} already")
        require_writable(given.out)
    return given


def main() -> None:
    """Measure, print and write; what is written grows row by row, so that nothing is lost when time runs out."""
    given = arguments()
    chosen = Chosen(torch.device(given.device), 3 if given.quick else given.steps, given.workers, given.quick)
    only = "" if set(given.only) == set(GROUPS) else f" --only {' '.join(given.only)}"
    rest = f"{only}{' --device cpu' if given.device == 'cpu' else ''}{' --quick' if given.quick else ''}"
    command = f"python benchmarks/others.py --steps {chosen.steps} --workers {chosen.workers}{rest} --out FILE.json"
    where, more = machine(chosen.device), ("torchvision", "pytorch-lightning")
    versions = where.versions | {one.name: one.version for one in distributions() if one.name in more}
    found = Benchmark(command, replace(where, versions=versions), given.quick, [])
    console = Console()
    for group, what, batch, find in (one for one in CONTESTANTS if one[0] in given.only):
        console.print(f"{what} ...", style="dim")
        found.rows.append(measure(group, what, batch, find, chosen))
        if given.out is not None:
            write(found, given.out)
            given.out.with_suffix(".md").write_text(markdown(found, chosen))
    console.print(table(found.rows))


if __name__ == "__main__":
    main()
