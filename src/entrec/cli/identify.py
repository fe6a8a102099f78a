"""`entrec identify`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from entrec.cli.edge import failing_clearly, require, require_free_file, say

_LAWS = "vmf:KAPPA, normal:SIGMA, laplace:SCALE or gennorm:BETA:SCALE"


def identify(
    space: Annotated[str, typer.Option(help="Of the latents: sphere, box or unbounded.")] = "sphere",
    marginal: Annotated[str, typer.Option(help=f"Law of one view's latents: uniform, {_LAWS}.")] = "uniform",
    conditional: Annotated[str, typer.Option(help=f"Law of the other view's around them: {_LAWS}.")] = "vmf:1",
    output: Annotated[
        str | None,
        typer.Option(help="Space of the projections. By default the sphere for vmf, else unbounded.", show_default=False),
    ] = None,
    model: Annotated[str, typer.Option(help="The density q: vmf:KAPPA, normal, laplace or gennorm:BETA.")] = "vmf:1",
    objective: Annotated[str, typer.Option(help="er or infonce.")] = "er",
    bandwidth: Annotated[
        float,
        typer.Option(
            help="Of the model's density in both terms of ER, in its own units. The tables' h = 10 is 0.1 for vmf and laplace, "
            "0.316 for normal."
        ),
    ] = 1.0,
    dim: Annotated[int, typer.Option(help="Latents.")] = 10,
    batch: Annotated[int, typer.Option(help="Pairs in a step.")] = 6144,
    steps: Annotated[int, typer.Option(help="Of training; the paper has 300,000.")] = 10_000,
    rate: Annotated[float, typer.Option(help="Adam's learning rate.")] = 1e-4,
    schedule: Annotated[str, typer.Option(help="Of the rate: constant, or cosine: a short rise, then down to 0.")] = "constant",
    width: Annotated[int, typer.Option(help="Of the encoder's wide layers, in dims.")] = 50,
    seed: Annotated[int, typer.Option(help="Of the mixing, the encoder and all draws.")] = 0,
    precision: Annotated[str, typer.Option(help="Of products: 32, or on a GPU tf32, fp16 or bf16.")] = "32",
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU if there is one.")] = "auto",
    out: Annotated[
        Path | None, typer.Option(help="JSON file for the result and its curve; with it, a run that was stopped goes on.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace that file.")] = False,
) -> None:
    """Train an encoder on mixed latents that are known, and score what it finds of them.

    Latents of two views are drawn and mixed by a random invertible network; the encoder sees the mixtures alone. R2 is that
    of a linear regression of the latents on the projections (100 % up to affine maps), MCC the mean correlation with the best
    assignment of coordinates (100 % up to order and scale). Defaults are the paper's, for a GPU; half a minute on a CPU core:

    entrec identify --conditional vmf:10 --dim 3 --batch 512 --width 30 --rate 1e-3 --steps 1500
    """
    require("scipy", extra="paper")
    if out is not None:
        require_free_file(out, overwrite)
    with failing_clearly():
        from entrec.identifiability import Point, Setting
        from entrec.identifiability import identify as run
        from entrec.identifiability.records import write
        from entrec.identifiability.unfinished import kept

        words: dict[str, Any] = {"space": space, "marginal": marginal, "conditional": conditional, "model": model}
        words |= {"output": output or ("sphere" if model.strip().lower().startswith("vmf") else "unbounded")}
        words |= {"objective": objective, "precision": precision, "schedule": schedule}
        chosen = Setting(**words, bandwidth=bandwidth, dim=dim, batch=batch, steps=steps, rate=rate, width=width, seed=seed)

        def told(at: Point) -> None:
            say(f"step {at.step:>7}  loss {at.loss:9.4f}  R2 {at.r2:7.2%}  MCC {at.mcc:7.2%}")

        unfinished = None if out is None else out.with_name(f"{out.name}.unfinished")
        if unfinished is not None and kept(unfinished, chosen) is not None:
            say(f"going on where {unfinished} stopped")
        try:
            found = run(chosen, device, told, unfinished)
        except KeyboardInterrupt:
            if unfinished is not None and unfinished.exists():
                say("stopped; the same command goes on")
            raise
        if out is not None and unfinished is not None:
            write(found, out)
            unfinished.unlink(missing_ok=True)
    say(f"\nthe mixtures themselves: R2 {found.r2_mixed:.2%}, MCC {found.mcc_mixed:.2%}")
    if found.diverged is not None:
        say(f"diverged: the loss was no number any more by step {found.diverged}")
    else:
        say(f"found (mean over 10 fresh batches): R2 {found.r2:.2%}, MCC {found.mcc:.2%}")
    say(f"{found.seconds:.0f} s on {found.device}, {found.steps_per_second:,.1f} steps/s")
    if out is not None:
        say(f"Written to {out}")
