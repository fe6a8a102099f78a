"""Samples per second of training through `entrec.train`, beside the encoder alone, and where a step goes.

    entrec bench train --method byol --er --backbone resnet18 --image-size 32 --batch-size 64 --batch-size 1024 --out FILE.json

The images are random and in memory, unless `--data` names others or `--jpegs` asks for files: what is measured is the step, not
the disk.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch

from entrec.bench.bare import LIMIT, WAYS, Way, bare_rate
from entrec.bench.data import feed_rate
from entrec.bench.parts import encoder_calls, step_parts
from entrec.bench.photos import make_photos
from entrec.bench.results import machine
from entrec.bench.train_rows import Benchmark, Row, Settings
from entrec.bench.trained import NEVER, trained, unwatched
from entrec.data import Held, Source, open_source
from entrec.training.assemble import assemble
from entrec.training.devices import fabric_for
from entrec.training.loop import Loop
from entrec.training.run import Run
from entrec.training.settings import settings as run_settings

_STEPS = {"cpu": 30, "cuda": 300}
_EPOCHS = 3
_CLASSES = 10
_PART_STEPS = {"cpu": 25, "cuda": 9}
_SAVES = 3
_TURNS = 5  # of training and encoder on a CPU, whose speed changes within seconds where others share it
_REPEATS = 10  # steps of the encoder at the least
_IN_MEMORY = 2**28  # bytes of random images at the most, but for what a few steps take


def settings(
    method: str = "byol",
    batches: tuple[int, ...] = (),
    image_size: int = 32,
    data: str | None = None,
    device: str = "auto",
    steps: int | None = None,
    jpegs: int = 0,
    **given: Any,
) -> Settings:
    """Check the choices; `given` are settings of the run: er, backbone, precision, compile, ...

    Unless told otherwise, a GPU's runs are compiled as long ones are.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if data is not None and jpegs:
        raise ValueError("data and jpegs exclude each other: train on what is there, or on files made for it")
    if given.get("compile") is None:
        given["compile"] = device == "cuda"
    run: dict[str, Any] = {"method": method, "device": device, **given, **({} if data is None else {"data": data})}
    run |= {"image_size": image_size} if jpegs else {}
    run_settings(method, {key: value for key, value in run.items() if key != "method"})
    for batch in batches:
        if batch < 2:
            raise ValueError(f"a batch must have at least 2 samples, got {batch}")
    steps = _STEPS.get(device, 30) if steps is None else steps
    if steps < 10:
        raise ValueError(f"steps must be at least 10, of which the first half is not counted, got {steps}")
    batches = batches or ((64, 256, 1024) if device == "cuda" else (64, 256))
    return Settings(run, batches, steps, None if data else image_size, jpegs)


def run(chosen: Settings, progress: Callable[[str], None] = lambda part: None) -> Benchmark:
    """Measure every batch size; `progress` hears what comes next."""
    device = torch.device(chosen.run["device"])
    where = machine(device)
    with tempfile.TemporaryDirectory() as folder:
        if chosen.jpegs:
            progress("making files")
            make_photos(Path(folder), chosen.jpegs)
        found = [_measured(chosen, batch, device, Path(folder), progress) for batch in chosen.batches]
    return Benchmark(chosen, found[-1][1], where, LIMIT[device.type], [row for row, _ in found])


def _measured(
    chosen: Settings, batch: int, device: torch.device, files: Path, progress: Callable[[str], None]
) -> tuple[Row, dict[str, Any]]:
    """One batch size, and the run's settings as they were understood."""
    source = open_source(files) if chosen.jpegs else _source(chosen, batch)
    wanted = run_settings(chosen.run["method"], _given(chosen, batch, len(source.train)))  # type: ignore[arg-type]
    on_gpu = device.type == "cuda"
    progress(f"batch {batch}: training")
    first, second = trained(wanted, source, device), None
    held = isinstance(source.train, Held)
    if on_gpu and held:  # between whose epochs no workers begin anew, which would be taken for rows that are spared
        progress(f"batch {batch}: training without rows and probe")
        second = unwatched(wanted, source, device)
    progress(f"batch {batch}: where the step goes")
    with tempfile.TemporaryDirectory() as folder:
        loop = Loop(fabric_for(wanted), assemble(wanted, source), Run(Path(folder)))
        step, calls, saving = step_parts(loop, _PART_STEPS[device.type]), encoder_calls(loop), _saving(loop)
    complete = {**loop.settings.flat(), "data": source.name}
    decoded = None if held else feed_rate(loop.feed, loop.workers, loop.batch_size)
    bf16 = loop.fabric._precision.precision != "32-true"
    del loop

    def encoder(way: Way) -> float | None:
        progress(f"batch {batch}: the encoder alone, {way}")
        return bare_rate(complete["backbone"], calls, batch, way=way, device=device, bf16=bf16, repeats=_REPEATS)

    rates = {way: rate for way in WAYS[device.type] if (rate := encoder(way)) is not None}
    workers = 0 if held else complete["workers"]
    rate, again = (None, None) if second is None else (second.rate, second.start)
    row = Row(
        batch, first.rate, rate, (first.start, again), saving, rates, step.parts, first.peak_mb, step.replayed, decoded, workers
    )
    if not on_gpu:
        row = row.in_turns(
            _turns(lambda: trained(wanted, source, device).rate, lambda: encoder("eager") or 0.0, rates["eager"])
        )
    return row, complete


def _saving(loop: Loop) -> tuple[float, float]:
    """Milliseconds until training goes on, and until the checkpoint is there; the medians, but for a first one."""
    found = []
    for _ in range(_SAVES + 1):
        begin = time.perf_counter()
        loop.save()
        waited = time.perf_counter()
        loop.writer.wait()
        found.append((1e3 * (waited - begin), 1e3 * (time.perf_counter() - begin)))
    held_up, written = (median(times) for times in zip(*found[1:], strict=True))
    return held_up, written


def _turns(training: Callable[[], float], encoder: Callable[[], float], before: float) -> tuple[tuple[float, float], ...]:
    """Rates of training, each beside the mean of the encoder's just before and after it.

    >>> trained, encoded = iter([4.0, 5.0, 6.0, 7.0, 8.0]), iter([12.0, 8.0, 10.0, 10.0, 10.0])
    >>> _turns(lambda: next(trained), lambda: next(encoded), before=8.0)
    ((4.0, 10.0), (5.0, 10.0), (6.0, 9.0), (7.0, 10.0), (8.0, 10.0))
    """
    found = []
    for _ in range(_TURNS):
        ours, after = training(), encoder()
        found.append((ours, fmean((before, after))))
        before = after
    return tuple(found)


def _given(chosen: Settings, batch: int, images: int) -> dict[str, Any]:
    """The run's settings: as a user has them, but for scores, which come between steps."""
    epochs = max(_EPOCHS, -(-chosen.steps * batch // images))
    usual = {"batch_size": batch, "epochs": epochs, "evaluate_every": NEVER, "scores": False}
    return {**usual, **{key: value for key, value in chosen.run.items() if key != "method"}}


def _source(chosen: Settings, batch: int) -> Source:
    if chosen.image_size is None:
        return open_source(chosen.run["data"])
    # So many that most rows come within an epoch, as in a run of a user's.
    most = _IN_MEMORY // (3 * chosen.image_size**2)
    return random_source(min(max(4 * batch, min(100 * batch, most)), chosen.steps * batch), chosen.image_size)


def random_source(n: int, side: int, backbone: str = "resnet18") -> Source:
    """So many images of noise in memory, with labels."""
    images = torch.randint(0, 256, (n, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    held = Held(images, torch.arange(n) % _CLASSES)
    return Source("noise", held, None, tuple(map(str, range(_CLASSES))), 3, side, (0.5,) * 3, (0.29,) * 3, backbone=backbone)
