"""Maps of held-out images: their features in the plane, and what the colours mean."""

from html import escape
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from entrec.branches.kmeans import kmeans
from entrec.report.style import fill, legend, mark

_CLUSTERS = 8
_WIDTH, _HEIGHT, _MARGIN = 320, 250, 8
_FEW = 16  # images: fewer have no neighbourhoods for UMAP to keep


class Plane(NamedTuple):
    """Places of images (k, 2), and how they were found."""

    how: str
    places: Tensor


def maps(name: str, features: Tensor, labels: Tensor, classes: tuple[str, ...]) -> str:
    """A run's maps, and beneath them the names of the classes, or of clusters where there are none."""
    groups, names = _groups(features, labels, classes)
    used = {number: name for number, name in enumerate(names) if bool((groups == number).any())}
    figures = "".join(_map(plane, groups, used) for plane in _planes(features))
    by = "class" if classes else f"cluster (k-means, {len(names)})"
    return (
        f"<article><h3>{escape(name)}</h3><div class='grid'>{figures}</div>"
        f"<p class='small'>Coloured by {by}:</p>{legend(used)}</article>"
    )


def umap() -> Any:
    """The class of that name, where the package is installed."""
    return None if find_spec("umap") is None else getattr(import_module("umap"), "UMAP", None)


def _groups(features: Tensor, labels: Tensor, classes: tuple[str, ...]) -> tuple[Tensor, list[str]]:
    if classes:
        return labels, list(classes)
    count = min(_CLUSTERS, len(features))
    found = kmeans(normalize(features.float(), dim=1), count, 20, torch.Generator().manual_seed(0))
    return found.labels, [f"cluster {number + 1}" for number in range(count)]


def _planes(features: Tensor) -> list[Plane]:
    reducer = umap()
    beside = [] if reducer is None or len(features) < _FEW else [Plane("UMAP", _by_umap(reducer, features))]
    return [_principal(features), *beside]


def _principal(features: Tensor) -> Plane:
    centred = (features - features.mean(dim=0)).double()
    left, sizes, _ = torch.linalg.svd(centred, full_matrices=False)
    whole = float(sizes.square().sum())
    part = float(sizes[:2].square().sum()) / whole if whole else 1.0
    places = pad(left[:, :2] * sizes[:2], (0, 2 - min(2, len(sizes))))  # a single image has one direction
    return Plane(f"Two principal components, {part:.0%} of the variance", places)


def _by_umap(reducer: Any, features: Tensor) -> Tensor:
    found = reducer(random_state=0, n_jobs=1).fit_transform(features.numpy())  # with a seed it takes one job, or complains
    return torch.as_tensor(found)


def _map(plane: Plane, groups: Tensor, names: dict[int, str]) -> str:
    places = _within(plane.places)
    drawn = "".join(
        f"<path d='{''.join(f'M{x:.1f} {y:.1f}{mark(number)}' for x, y in places[groups == number].tolist())}' "
        f"{fill(number)}><title>{escape(name)}</title></path>"
        for number, name in names.items()
    )
    how = escape(plane.how, quote=True)
    return (
        f"<figure><svg viewBox='0 0 {_WIDTH} {_HEIGHT}' role='img' aria-label='{how}'>"
        f"<path d='M.5 .5H{_WIDTH - 0.5}V{_HEIGHT - 0.5}H.5z' fill='none' stroke='#bbb'/>{drawn}</svg>"
        f"<p class='small'>{how}</p></figure>"
    )


def _within(places: Tensor) -> Tensor:
    """The same places, moved and stretched to fill the map."""
    low, high = places.amin(dim=0), places.amax(dim=0)
    shares = torch.where(high > low, (places - low) / (high - low).clamp(min=1e-30), 0.5)
    room = torch.tensor([_WIDTH, _HEIGHT]) - 2 * _MARGIN
    return _MARGIN + shares * room
