"""`python -m entrec`, for launchers such as torchrun."""

from entrec.cli import app

app()
