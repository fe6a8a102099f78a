"""What a run's encoder makes of held-out images, or of training images where there are no others: a map, and neighbours."""

import base64
import io
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import normalize

from entrec.report.maps import maps, umap

IMAGES = 600  # on a map, at the most
_QUERIES, _NEIGHBOURS = 6, 7
_SIDE = 64  # pixels of a picture


class Gallery(NamedTuple):
    """Images and their features.

    Args:
        name: of the run.
        features: (k, width).
        pictures: of the images, uint8 (C, H, W) each.
        labels: (k,), -1 without.
        classes: their names; empty without labels.
        held_out: they are of a test split; else of data that have none.
    """

    name: str
    features: Tensor
    pictures: Sequence[Tensor]
    labels: Tensor
    classes: tuple[str, ...]
    held_out: bool = True


def shown(galleries: Sequence[Gallery]) -> str:
    """A map and strips of neighbours for each run, as HTML."""
    drawn = "".join(maps(x.name, x.features, x.labels, x.classes) for x in galleries)
    strips = "".join(f"<h3>{escape(gallery.name)}</h3>{_strips(gallery)}" for gallery in galleries)
    others = ", ".join(escape(x.name) for x in galleries if not x.held_out)
    of_whom = f" Not held out, as there is no test split, but of the images to train on: those of {others}." if others else ""
    return (
        f"<h2>Maps of {'' if others else 'held-out '}images</h2>"
        f"<p class='small'>The encoder's features of each image, in the plane.{of_whom}</p>"
        f"<div class='{'grid' if umap() is None else 'pairs'}'>{drawn}</div>"
        "<h2>Nearest neighbours</h2><p class='small'>At the left an image, then those whose features are nearest (cosine), the "
        f"nearest first.</p>{strips}"
    )


def _strips(gallery: Gallery) -> str:
    directions = normalize(gallery.features.double(), dim=1)
    queries = torch.linspace(0, len(directions) - 1, min(_QUERIES, len(directions))).long().unique()
    near = (directions[queries] @ directions.T).scatter(1, queries[:, None], -2.0)
    order = near.topk(min(_NEIGHBOURS, len(directions) - 1), dim=1).indices
    rows = []
    for query, neighbours in zip(queries.tolist(), order.tolist(), strict=True):
        cells = "".join(_picture(gallery, place, "near") for place in neighbours)
        rows.append(f"<div class='strip'>{_picture(gallery, query, 'query')}{cells}</div>")
    return "".join(rows)


def _picture(gallery: Gallery, place: int, kind: str) -> str:
    label = int(gallery.labels[place])
    name = gallery.classes[label] if gallery.classes and label >= 0 else f"image {place}"
    said = escape(name, quote=True)
    return f"<img class='{kind}' alt='{said}' title='{said}' src='{_png(gallery.pictures[place])}'>"


def _png(picture: Tensor) -> str:
    pixels = picture.permute(1, 2, 0).cpu().numpy()
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels[:, :, :3])
    image.thumbnail((_SIDE, _SIDE))
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}"
