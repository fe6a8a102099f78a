"""The lens on images that are held out, or where none are, on training images: two views of each, the same at every look."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from entrec.data import Held, Source
from entrec.data.files import CorruptImage
from entrec.lens.judged import judged
from entrec.lens.readings import CodeReadings, Readings
from entrec.lens.verdict import Verdict, unless_early
from entrec.methods import Seen
from entrec.training.images import some
from entrec.views.augment import Augment

_ROWS = 2048  # images at the most, and 256 at the least; in between a sixteenth of an epoch's, which is one step in fifty
_FEW = 256
_BYTES = 2**28  # of crops in memory
_AT_ONCE = 256  # images in a pass


class Look(NamedTuple):
    """What the lens saw: readings, which are missing where no row is a number, and the verdict."""

    readings: Readings | CodeReadings | None
    verdict: Verdict

    def row(self) -> dict[str, float]:
        """The numbers for metrics.csv: entropies on a scale from 0 to 1, bounds in nats.

        Their names say `held_out` also where there is no test split, and training images were looked at.
        """
        found = self.readings
        if found is None:
            return {}
        if isinstance(found, CodeReadings):
            own = {
                "held_out_entropy": found.marginal / found.largest,
                "held_out_conditional": found.conditional / found.largest,
            }
        else:
            own = {"held_out_entropy": found.filled, "effective_rank": found.rank}
            own |= {"held_out_uniformity": found.uniformity, "held_out_spread": found.spread[1]}
        pairs = {} if found.pairs is None else asdict(found.pairs)
        return own | {f"held_out_{key}": value for key, value in pairs.items() if value is not None}


class HeldOut:
    """Two views of images of the test split, or of the training split where there is no other.

    Args:
        source: the images.
        augment: what makes the views; their draws are the same at every look.
        device: where.
        seed: of these draws.
    """

    def __init__(self, source: Source, augment: Augment, device: torch.device, seed: int) -> None:
        dataset: Any = source.train if source.test is None else source.test
        self._augment, self._device, self._seed = augment.first(2), device, seed
        self._trained_on = source.test is None
        rows = rows_to_look_at(len(source.train))  # type: ignore[arg-type]
        self._images: Tensor | None = None
        self._crops: tuple[Tensor, ...] = ()
        if isinstance(dataset, Held):
            self._images = some(dataset, rows).images
        else:
            size = augment.recipe.views[0].crop.size
            self._crops = _cropped(some(dataset, min(rows, _BYTES // (6 * size * size))), self._augment, seed)

    def look(self, method: Any, kappa: float, name: str, er: bool = False, steps: int | None = None) -> Look:
        """What a method's student makes of them, in eval mode.

        Args:
            method: the module.
            kappa: of the kernel.
            name: the method's, for its remedies.
            er: it trains with the ER objective, which is no remedy then.
            steps: of the optimiser that it has taken, as after few there is no telling a collapse; None: many.
        """
        first, second, codes = self.seen(method)
        readings, verdict = judged((first, second), codes, kappa, name, er)
        if verdict is None:
            raise ValueError("the lens needs at least 2 images that can be read, got 1")
        verdict = verdict if steps is None else unless_early(verdict, steps)
        if self._trained_on:
            said = f"Seen on {len(first)} images that are trained on, as the data have no test split."
            verdict = replace(verdict, because=(*verdict.because, said))
        return Look(readings, verdict)

    def seen(self, method: Any) -> tuple[Tensor, Tensor, bool]:
        """What a method makes of both views, (k, d) each, in eval mode; and whether that is logits of codes."""
        with _evaluating(method):
            pairs = [self._seen(method, *part) for part in self._parts()]
        first, second = (torch.cat([pair[view].values for pair in pairs]).float() for view in (0, 1))
        return first, second, pairs[0][0].codes

    def _parts(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Both views, some images at a time; the draws of an image do not depend on how many."""
        generator, augment = Generator(self._device).manual_seed(self._seed), self._augment
        if self._images is None:
            first, second = self._crops
            numbers = augment.draw_looks(2, len(first), generator)
        else:
            first = second = self._images
            numbers = augment.draw(len(first), generator)
        for start in range(0, len(first), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            own = [drawn[:, part] for drawn in numbers]
            images = [x[part].to(self._device) for x in (first, second)]
            if self._images is None:
                one, other = augment.finished(tuple(images), own)
            else:
                one, other = (augment.view(*of) for of in zip(augment.recipe.views, images, own, strict=True))
            yield one, other

    def _seen(self, method: Any, first: Tensor, second: Tensor) -> tuple[Seen, Seen]:
        layout = torch.channels_last if first.is_cuda else torch.contiguous_format
        one, other = (method.see(x.contiguous(memory_format=layout), view) for view, x in enumerate((first, second)))
        return one, other


def views_of(source: Source) -> str:
    """What the lens looks at, in words."""
    return "held-out views" if source.test is not None else "views of training images (there is no test split)"


def rows_to_look_at(images: int) -> int:
    """How many of the held-out images, by how many there are to train on."""
    return min(_ROWS, max(_FEW, images // 16))


def _cropped(dataset: Any, augment: Augment, seed: int) -> tuple[Tensor, ...]:
    """The first two crops of every image that can be read, in memory."""
    found: list[tuple[Tensor, ...]] = []
    for place in range(len(dataset)):
        try:
            image, _ = dataset[place]
        except CorruptImage:
            continue  # what is broken is named where the data are read for training or scores
        found.append(augment.crop(image, Generator().manual_seed(seed + place))[:2])
    return tuple(torch.stack(view) for view in zip(*found, strict=True))


@contextmanager
def _evaluating(method: nn.Module) -> Iterator[None]:
    """Eval mode, no gradients, and no compiling for this: another mode, and other sizes."""
    was = method.training
    method.eval()
    stance = torch.compiler.set_stance("force_eager") if torch.cuda.is_available() else nullcontext()
    try:
        with torch.no_grad(), stance:
            yield
    finally:
        method.train(was)
