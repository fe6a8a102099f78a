"""From the runs to a table beside lightly's numbers, what it says, and the scores over training."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from entrec.files import appearing
from entrec.paper.grid.claims import Claim, at_most, judged, over
from entrec.paper.grid.experiment import Table
from entrec.paper.grid.measured import Measured
from entrec.paper.grid.setting import NAMES
from entrec.paper.grid.trials import Ended, ended, made
from entrec.paper.neighbours.figure import draw
from entrec.paper.neighbours.grid import CIFAR10, PUBLISHED, Where, name_of, seen_of, where_of
from entrec.training.presets import LIGHTLY

_NEAR = 1.5  # points that a method may be below lightly's
_MINUTES = 8.0


class Scored(NamedTuple):
    """A method's runs with one objective: kNN in percent at the best and the last epoch, minutes, and how they ended."""

    best: Measured
    last: Measured
    minutes: Measured
    ended: Ended


class Study(NamedTuple):
    """What came out."""

    table: Table
    claims: list[Claim]  # none where the runs are not the benchmark's
    scored: dict[tuple[str, bool], Scored]


def render(out: Path) -> Study:
    """Write table.md, results.json and the figure from the runs that are there.

    Raises:
        ValueError: the folder holds no such runs.
    """
    where = where_of(out)
    scored = {(method, er): _scored(out / "runs", method, er) for method in PUBLISHED for er in (False, True)}
    study = Study(_table(scored), _claims(scored) if _comparable(where, seen_of(out)) else [], scored)
    curves = {key: [run.metrics for run in found.ended.runs.values()] for key, found in scored.items()}
    draw({NAMES[method]: (PUBLISHED[method], curves[method, False], curves[method, True]) for method in PUBLISHED}, out / "knn")
    _write(out / "table.md", _markdown(where, study))
    _write(out / "results.json", json.dumps(_document(where, study), indent=1) + "\n")
    return study


def _comparable(where: Where, seen: Mapping[str, Any]) -> bool:
    """Whether the runs are the benchmark's: its protocol, and as many images of as many classes as CIFAR-10 has."""
    facts, usual = where.facts(), Where().facts()
    sizes = {key: seen[key] for key in CIFAR10 if key in seen}  # folders of before it was kept have none
    return all(facts[key] == usual[key] for key in facts if key != "data") and sizes in ({}, CIFAR10)


def _scored(folder: Path, method: str, er: bool) -> Scored:
    found = ended(folder, name_of(method, er, 0).removesuffix("-seed0"))

    def percent(key: str) -> Measured:
        scores = {seed: run.summary.get(key) for seed, run in found.runs.items()}
        return found.measured({seed: None if x is None else 100 * x for seed, x in scores.items()}, f"no {key}")

    # The last score is among those of which the best is; and time is that of training and all that is between.
    seconds = {seed: made(run).get("seconds") for seed, run in found.runs.items()}
    minutes = found.measured({seed: None if x is None else x / 60 for seed, x in seconds.items()}, "no time was noted")
    return Scored(percent("knn_best"), percent("knn_top1"), minutes, found)


def _table(scored: dict[tuple[str, bool], Scored]) -> Table:
    rows = []
    for method, published in PUBLISHED.items():
        own, er = scored[method, False], scored[method, True]
        difference = f"{own.best.mean - published:+.1f}" if own.best.by_seed else "-"
        row = [NAMES[method], f"{published:.1f}", own.best.shown(), difference, own.last.shown(), own.minutes.shown()]
        rows.append([*row, er.best.shown(), er.last.shown(), er.minutes.shown()])
    columns = ["", "lightly, best", "ours, best", "difference", "ours, last", "minutes", "+ER, best", "+ER, last", "minutes"]
    note = (
        "kNN accuracy in percent, k = 200, temperature 0.1. lightly's is the best of 200 test scores; ours is the best of "
        "fewer, and the score after the last epoch, which no test image has chosen. Minutes are of a whole run, scores "
        "included. Mean ± standard deviation (seeds)."
    )
    return Table("Beside lightly's", columns, rows, note)


def _claims(scored: dict[tuple[str, bool], Scored]) -> list[Claim]:
    own = {method: scored[method, False] for method in PUBLISHED}
    near, quick = [], []
    for method, found in own.items():
        state, numbers = over(found.best, PUBLISHED[method] - _NEAR), f"{found.best.shown()}, lightly's {PUBLISHED[method]:.1f}"
        near.append(judged(NAMES[method], found.best, state, numbers, diverged="not so"))
        quick.append(judged(NAMES[method], found.minutes, at_most(found.minutes, _MINUTES), found.minutes.shown()))
    return [
        Claim(f"Each method is within {_NEAR:g} points of lightly's, or better, at its best epoch", near),
        Claim(f"A run takes at most {_MINUTES:g} minutes", quick),
    ]


def _markdown(where: Where, study: Study) -> str:
    facts = where.facts()
    usual = Where().facts()
    given = "".join(f" --{key.replace('_', '-')} {x}" for key, x in facts.items() if x != usual[key])
    runs = [run for found in study.scored.values() for run in found.ended.runs.values()]
    devices = sorted({f"{made(run).get('device', '?')}, torch {made(run).get('torch', '?')}" for run in runs})
    failed = [
        f"{name_of(*key, seed)} ({reason})"
        for key, found in study.scored.items()
        for seed, reason in found.ended.failures.items()
    ]
    lines = ["# Accuracy beside lightly's CIFAR-10 benchmark", "", f"    entrec paper neighbours{given}", ""]
    lines += [
        f"{facts['data']}, {where.backbone}, batch {where.batch_size}, {where.epochs} epochs. Protocol: "
        + " ".join(LIGHTLY.source.split())
        + ("" if study.claims else " **Not the benchmark**, but of another size or on other data: nothing is to be compared."),
        "",
    ]
    lines += [f"{len(runs)} runs: {'; '.join(devices)}.", ""] if runs else ["No run has ended yet.", ""]
    lines += [f"Failed: {'; '.join(failed)}.", ""] if failed else []
    lines += ["| | | the numbers |", "|---|---|---|"] if study.claims else []
    lines += [claim.markdown() for claim in study.claims]
    return "\n".join([*lines, "", *study.table.markdown(), "![kNN over training](knn.png)", ""])


def _document(where: Where, study: Study) -> dict[str, Any]:
    return {
        "protocol": where.facts(),
        "published": PUBLISHED,
        "claims": [x.facts() for x in study.claims],
        "runs": {
            name_of(*key, seed): {"best": found.best.by_seed.get(seed), "last": found.last.by_seed.get(seed), **made(run)}
            for key, found in study.scored.items()
            for seed, run in found.ended.runs.items()
        },
        "failures": {
            name_of(*key, seed): reason for key, found in study.scored.items() for seed, reason in found.ended.failures.items()
        },
    }


def _write(path: Path, text: str) -> None:
    with appearing(path) as unfinished:
        unfinished.write_text(text)
