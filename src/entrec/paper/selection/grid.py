"""The runs: all methods, with their own loss and with ER, in settings that serve them and settings that do not."""

from typing import Any

from entrec.paper.runner import Cell


def cells(batch: int = 64) -> list[Cell]:
    """Every run of the study, in a fixed order; in batches of so many, but where the batch is what differs."""
    found = [_cell(method, er=er) for method in ("moco", "cmc", "ir", "dino", "swav", "deepcluster") for er in (False, True)]
    found += [_cell("simclr", er=er, batch_size=size) for er in (False, True) for size in (batch // 2, 2 * batch, 8 * batch)]
    found += [_cell("byol", er=er, ema=ema) for er in (False, True) for ema in (0.99, 0.8, 0.5, 0.0)]
    found += [_cell(method, er=True, weight=weight) for method in ("simclr", "byol") for weight in (0.25, 4.0)]
    # Meant to fail, each in its own way: a constant, an even guess, views that are told apart by nothing.
    found.append(_cell("byol", er=False, ema=None, predictor_rate=0.01))
    found.append(_cell("dino", er=False, centring=False, teacher_temperature=0.1))
    found.append(_cell("swav", er=False, epsilon=10.0))
    found.append(_cell("simclr", er=False, temperature=5.0))
    return [cell._replace(given={"batch_size": batch, **cell.given}) for cell in found]


def _cell(method: str, **given: Any) -> Cell:
    words = [method, *(["er"] if given.get("er") else [])]
    words += [f"{key}-{value}".lower() for key, value in given.items() if key != "er"]
    return Cell("-".join(words), method, given)
