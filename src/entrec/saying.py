"""How a line is shown in a terminal."""

from rich.console import Console

from entrec.files import readable


def show_line(text: str, console: Console, style: str | None = None) -> None:
    """Print text as it is.

    Paths may hold what Rich takes for markup or emoji, or what is not UTF-8; broken into lines they cannot be copied.
    """
    console.print(readable(text), style=style, markup=False, emoji=False, highlight=False, soft_wrap=True)
