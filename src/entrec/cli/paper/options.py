"""Options that commands which train share, in the same words."""

from enum import StrEnum
from typing import Annotated, Any

import typer

NEW: dict[str, Any] = {"show_default": False}  # None, which says nothing to a reader of the help


class Numbers(StrEnum):
    """What encoders multiply in."""

    float32 = "32"
    bfloat16 = "bf16"


Only = Annotated[list[str] | None, typer.Option(help="Make only runs named like this (byol*); repeat it.", **NEW)]
Minutes = Annotated[float | None, typer.Option(min=0, help="Start no new run after this many minutes.", **NEW)]
Retry = Annotated[bool, typer.Option("--retry", help="Make runs that failed again.")]
Jobs = Annotated[int, typer.Option(min=1, help="Runs at a time; they share one GPU by NVIDIA's MPS, where it has it.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU if there is one.")]
Precision = Annotated[
    Numbers | None,
    typer.Option(help="In which encoders compute. By default bf16 on a GPU; a CPU that has it is faster with it too.", **NEW),
]
Keep = Annotated[bool, typer.Option("--keep-checkpoints", help="Keep checkpoints and encoders of finished runs.")]
Render = Annotated[bool, typer.Option("--render", help="Train nothing: make the results from the runs that are there.")]
