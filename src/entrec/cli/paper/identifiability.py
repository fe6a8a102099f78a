"""`entrec paper identifiability`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from entrec.cli.edge import require, say
from entrec.cli.paper.checks import require_heard
from entrec.cli.paper.options import Device, Jobs, Minutes, Only
from entrec.cli.paper.showing import progress_line


def identifiability(
    table: Annotated[
        list[str] | None,
        typer.Option(help="affine, permutation or content-style; repeat it. By default all.", show_default=False),
    ] = None,
    row: Annotated[
        list[int] | None, typer.Option(help="Rows of the tables, from 1 on; repeat it. By default all.", show_default=False)
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Steps of a cell. By default the paper's 300,000, content-style 50,000.", show_default=False),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each cell.")] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="Three latents, a small network: a cell in one to three minutes of a CPU core.")
    ] = False,
    rate: Annotated[
        float | None, typer.Option(min=0, help="Adam's learning rate. By default the paper's 0.0001.", show_default=False)
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(help="constant, as the paper's; or cosine: a short rise, then down to 0.", show_default=False),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="Precision of products: 32, or on a GPU tf32, fp16 or bf16. By default 32.", show_default=False),
    ] = None,
    only: Only = None,
    minutes: Minutes = None,
    jobs: Jobs = 1,
    device: Device = "auto",
    out: Annotated[Path, typer.Option(help="Folder for one JSON file a cell, table.md and the figures.")] = Path(
        "runs/identifiability"
    ),
    render: Annotated[bool, typer.Option("--render", help="Run nothing: the tables from the cells that are there.")] = False,
) -> None:
    """Does maximising the bound find the latents that data were made of? The tables of the paper's Appendix C.

    Cells that are there are not run again, one that was stopped goes on, and one that is not there stands in the table as not
    run. The paper's protocol is for a GPU.
    """
    require("matplotlib", "scipy", extra="paper")
    from dataclasses import replace
    from typing import get_args

    from entrec.cli.edge import failing_clearly
    from entrec.identifiability.words import choice
    from entrec.paper import identifiability as experiment
    from entrec.paper.runner import named

    with failing_clearly():
        for name in table or ():
            choice("table", name, experiment.TableName)
        tables: Any = table or get_args(experiment.TableName)
        asked = {"steps": steps, "rate": rate, "schedule": schedule, "precision": precision}
        given: dict[str, Any] = {key: x for key, x in asked.items() if x is not None}
        scale = replace(experiment.QUICK if quick else experiment.Scale(), **given)
        wanted = named(experiment.cells(tables, row or (), seeds, scale), only or ())
        if render:
            require_heard("--render makes no runs", only=only, minutes=minutes)
            if not (out / "cells").is_dir():
                raise ValueError(f"there are no cells in {out}, of which --render could make a table")
        else:
            with progress_line() as progress:
                experiment.make(out, wanted, scale, device, progress, jobs, minutes)
        words = ["entrec paper identifiability", *(["--quick"] if quick else []), *([f"--seeds {seeds}"] if seeds > 1 else [])]
        chosen = [*(f"--table {x}" for x in table or ()), *(f"--row {x}" for x in row or ())]
        path = experiment.render(out, tables, scale, words, chosen)
    say(path.read_text())
    say(f"Written to {path}")
