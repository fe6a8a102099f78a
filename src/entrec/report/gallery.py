"""What a run's encoder makes of held-out images: a map of them, and who is near whom."""

import base64
import io
from collections.abc import Sequence
from html import escape
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor
from torch.nn.functional import normalize

from entrec.branches.kmeans import kmeans
from entrec.report.curves import svg

IMAGES = 600  # on a map, at the most
_CLUSTERS = 8
_QUERIES, _NEIGHBOURS = 6, 7
_SIDE = 64  # pixels of a picture
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
_MARKERS = ("o", "s", "^", "D")  # so that more classes than colours can be told apart


class Gallery(NamedTuple):
    """Images and their features.

    Args:
        name: of the run.
        features: (k, width).
        pictures: of the images, uint8 (C, H, W) each.
        labels: (k,), -1 without.
        classes: their names; empty without labels.
    """

    name: str
    features: Tensor
    pictures: Sequence[Tensor]
    labels: Tensor
    classes: tuple[str, ...]


def shown(galleries: Sequence[Gallery]) -> str:
    """Maps side by side, and strips of neighbours for each run, as HTML."""
    strips = "".join(f"<h3>{escape(gallery.name)}</h3>{_strips(gallery)}" for gallery in galleries)
    by = "class" if galleries[0].classes else f"cluster ({_CLUSTERS}, k-means)"
    how = "UMAP" if _umap() is not None else "the first two principal components"
    return (
        f"<h2>Map of held-out images</h2><p class='small'>The encoder's features, {how}; coloured by {by}.</p>"
        f"{_maps(galleries)}<h2>Nearest neighbours</h2><p class='small'>At the left an image, then those whose features are "
        f"nearest (cosine), the nearest first.</p>{strips}"
    )


def _maps(galleries: Sequence[Gallery]) -> str:
    figure = Figure(figsize=(max(4.2, 3.6 * len(galleries)) + 1.6, 3.8), layout="constrained")
    axes: Any = figure.subplots(1, len(galleries), squeeze=False)[0]
    for axis, gallery in zip(axes, galleries, strict=True):
        groups, names = _groups(gallery)
        places = _plane(gallery.features)
        for number, name in enumerate(names):
            chosen = places[groups == number]
            style: dict[str, Any] = {"s": 9, "color": _COLOURS[number % len(_COLOURS)], "alpha": 0.75, "linewidths": 0}
            marker = _MARKERS[number // len(_COLOURS) % len(_MARKERS)]
            axis.scatter(chosen[:, 0], chosen[:, 1], marker=marker, label=name, **style)
        axis.set(xticks=[], yticks=[])
        axis.set_title(gallery.name, fontsize=10)
    if len(names) <= 20:
        figure.legend(
            *axes[-1].get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=8, markerscale=2
        )
    return svg(figure)


def _groups(gallery: Gallery) -> tuple[Tensor, list[str]]:
    if gallery.classes:
        return gallery.labels, [name.replace("$", r"\$") for name in gallery.classes]  # or it would be read as a formula
    count = min(_CLUSTERS, len(gallery.features))
    found = kmeans(normalize(gallery.features.float(), dim=1), count, 20, torch.Generator().manual_seed(0))
    return found.labels, [f"cluster {number + 1}" for number in range(count)]


def _plane(features: Tensor) -> Tensor:
    umap = _umap()
    if umap is not None:
        return torch.from_numpy(umap(random_state=0).fit_transform(features.numpy()))
    centred = (features - features.mean(dim=0)).double()
    left, sizes, _ = torch.linalg.svd(centred, full_matrices=False)
    places: Tensor = left[:, :2] * sizes[:2]
    return places


def _umap() -> Any:
    """The class of that name, where the package is installed."""
    return None if find_spec("umap") is None else import_module("umap").UMAP


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
