"""One self-contained HTML page about embeddings: the verdict, the numbers, and two pictures."""

import io
from html import escape
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from entrec.lens.examine import Examined
from entrec.lens.table import lines
from entrec.pairwise.similarity import to_sphere

# Okabe and Ito's colours, which everyone can tell apart.
_BLUE, _ORANGE = "#0072B2", "#D55E00"
_COLOURS = {"healthy": "#00664b", "saturated": "#7a5c00", "weak": "#7a5c00"}  # on white, dark enough to read
_FAILED = "#a32c00"
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }
table { border-collapse: collapse; margin: 1rem 0; width: 100%; } th, td { padding: .3rem .6rem; text-align: left; }
th { border-bottom: 2px solid #444; font-weight: 600; } td { border-bottom: 1px solid #ddd; }
td:nth-child(2), th:nth-child(2) { text-align: right; font-variant-numeric: tabular-nums; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(19rem, 100%), 1fr)); gap: 1rem; }
svg { width: 100%; height: auto; } .small { color: #555; font-size: .9rem; }
.verdict { border-left: .4rem solid; padding: .2rem 1rem; } .verdict h2 { margin: .2rem 0; }
"""


def page(found: Examined, title: str) -> str:
    """The page as text; whatever comes from files is escaped."""
    verdict = found.verdict
    rows = "".join(
        f"<tr><td>{escape(x.name)}</td><td>{escape(x.value)}</td><td>{escape(x.between)}</td></tr>"
        for x in lines(found.readings)
    )
    because = "".join(f"<p>{escape(text)}</p>" for text in verdict.because)
    remedies = "".join(f"<li>{escape(text)}</li>" for text in verdict.remedies)
    notes = "".join(f"<p class='small'>{escape(text)}</p>" for text in found.notes)
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
        f"<title>{escape(title)}</title><style>{_STYLE}</style><h1>{escape(title)}</h1>"
        f"<div class='verdict' style='border-color: {_COLOURS.get(verdict.name, _FAILED)}'>"
        f"<h2 style='color: {_COLOURS.get(verdict.name, _FAILED)}'>{escape(verdict.title)}</h2>{because}</div>"
        f"{f'<h2>What usually helps</h2><ul>{remedies}</ul>' if remedies else ''}"
        f"<h2>Readings</h2><table><tr><th>reading</th><th>value</th><th>what it means</th></tr>{rows}</table>"
        f"{_pictures(found.embeddings.views)}{notes}"
        "<p class='small'>Entropies, reconstructions and bounds are in nats. Made by entrec.</p></html>\n"
    )


def _pictures(views: tuple[Tensor, ...]) -> str:
    """The singular values, and how alike the views of one datum and those of different data are: a picture each."""
    spectrum, axis = _picture()
    values = torch.linalg.svdvals(views[0].double())
    axis.semilogy(range(1, len(values) + 1), (values / values[0]).clamp(min=1e-8), color=_BLUE, linewidth=1.6)
    axis.set(title="singular values over the largest", xlabel="in their order")
    alike, axis = _picture()
    directions = [to_sphere(view.double()) for view in views]
    others = _cosines(directions[0], directions[-1].roll(len(directions[0]) // 2, dims=0))
    shown: dict[str, Any] = {"bins": 60, "range": (-1, 1), "density": True, "histtype": "stepfilled", "alpha": 0.55}
    axis.hist(others.numpy(), color=_BLUE, label="of different data", **shown)
    if len(directions) == 2:
        axis.hist(_cosines(directions[0], directions[1]).numpy(), color=_ORANGE, label="of one datum", **shown)
    axis.set(title="cosine of two embeddings", xlabel="cosine", ylabel="density")
    axis.legend(frameon=False, fontsize=10)
    return f"<div class='pictures'>{_svg(spectrum)}{_svg(alike)}</div>"


def _picture() -> tuple[Figure, Any]:
    """As wide as a phone, on which its text is to be read."""
    figure = Figure(figsize=(4.4, 3.2), layout="constrained")
    axis = figure.subplots()
    axis.grid(alpha=0.25, linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    return figure, axis


def _svg(figure: Figure) -> str:
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = stream.getvalue()
    return text[text.index("<svg") :]


def _cosines(first: Tensor, second: Tensor) -> Tensor:
    return (first * second).sum(dim=1).clamp(-1, 1)  # rounding leads out of the picture
