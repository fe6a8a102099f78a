"""From runs to rank correlations: how well each number that needs no labels orders encoders as a linear probe does."""

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr

from entrec.files import appearing
from entrec.lens.readings import CodeReadings, Pairs, Readings
from entrec.lens.verdict import FAILURES, diagnose
from entrec.paper.runner import outcome
from entrec.paper.selection.figure import scatter
from entrec.paper.selection.runner import UNTRAINED
from entrec.training.run import Run

# Each so that more is better.
NUMBERS: dict[str, str] = {
    "er_bound": "ER bound",
    "entropy": "entropy, from 0 to 1",
    "reconstruction": "reconstruction (minus alignment, or the mean log-probability of codes)",
    "infonce_bound": "InfoNCE bound",
    "nearer": "own other view nearer",
    "rank": "effective rank (RankMe)",
    "alignment_uniformity": "minus (alignment + uniformity)",
}
GROUPS = ("all", "on the sphere", "codes")


@dataclass(frozen=True)
class Reading:
    """A run's numbers without labels, those that it has, its linear probe, and what the lens said."""

    name: str
    linear: float
    codes: bool
    verdict: str
    numbers: dict[str, float]


@dataclass(frozen=True)
class Study:
    """All runs, and how numbers and verdicts without labels compare with the probe.

    Args:
        command: that makes it.
        setting: device, versions and seed of the runs.
        untrained: linear probe on the encoder before any training, and its standard error.
        readings: of each run that has ended.
        diverged: runs whose loss or weights were no numbers any more, which ended them.
        failed: runs that failed in another way, which says nothing of their settings, and why.
        correlations: for each number and group of methods Spearman's correlation with the probe and how many runs it is of.
    """

    command: str
    setting: str
    untrained: tuple[float, float]
    readings: list[Reading]
    diverged: list[str]
    failed: dict[str, str]
    correlations: dict[str, dict[str, tuple[float, int]]]

    def learnt(self, reading: Reading) -> bool:
        """Whether a run is above the untrained encoder by more than three standard errors."""
        accuracy, error = self.untrained
        return reading.linear > accuracy + 3 * error

    @property
    def false_alarms(self) -> list[str]:
        """Runs that learnt and were called failed."""
        return [x.name for x in self.readings if self.learnt(x) and x.verdict in FAILURES]

    @property
    def missed(self) -> list[str]:
        """Runs that learnt nothing and were called healthy, or had too few data to tell."""
        return [x.name for x in self.readings if not self.learnt(x) and x.verdict in ("healthy", "saturated")]


def render(out: Path) -> Study:
    """The study from the runs that are there; writes results.json, table.md and the figure."""
    runs = {path: outcome(path) for path in sorted((out / "runs").glob("*")) if path.is_dir()}
    done = [Run(path) for path, found in runs.items() if found.state == "done"]
    failed = {path.name: found for path, found in runs.items() if found.state == "failed"}
    if len(done) < 3:
        raise ValueError(f"{out / 'runs'} holds {len(done)} runs that have ended; at least 3 are needed")
    untrained = json.loads((out / UNTRAINED).read_text())
    readings = [_reading(run.folder.name, run.summary) for run in done]
    study = Study(
        command=untrained["command"],
        setting=f"{untrained['data']}; {_setting(done[0])}",
        untrained=(untrained["linear"], untrained["standard_error"]),
        readings=readings,
        diverged=[name for name, found in failed.items() if found.diverged],
        failed={name: found.reason for name, found in failed.items() if not found.diverged},
        correlations={key: {group: _correlation(key, group, readings) for group in GROUPS} for key in NUMBERS},
    )
    for name, text in (("results.json", json.dumps(asdict(study), indent=1) + "\n"), ("table.md", markdown(study))):
        with appearing(out / name) as unfinished:
            unfinished.write_text(text)
    drawn = [x for x in readings if "er_bound" in x.numbers]
    scatter(
        [(x.name, x.numbers["er_bound"], x.linear, x.codes, x.verdict) for x in drawn], study.untrained[0], out / "er-bound"
    )
    return study


def _setting(run: Run) -> str:
    versions = run.summary["versions"]
    known = ", ".join(f"{name} {versions[name]}" for name in ("torch", "python"))
    return f"{run.config['backbone']}, {run.config['device']}, seed {run.config['seed']}; {known}"


def markdown(study: Study) -> str:
    """The correlations, what the verdicts were worth, and the runs, as tables."""
    lines = [
        "# Which number without labels orders encoders as a linear probe does?",
        "",
        f"    {study.command}",
        "",
        f"{study.setting}. Spearman's rank correlation over {len(study.readings)} runs, failures included; two held-out views "
        "of each image, projections or codes of the student.",
        "",
        "| number | " + " | ".join(f"{group}" for group in GROUPS) + " |",
        "|---|" + "---:|" * len(GROUPS),
    ]
    for key, name in NUMBERS.items():
        cells_ = (_shown(*study.correlations[key][group]) for group in GROUPS)
        lines.append(f"| {name} | " + " | ".join(cells_) + " |")
    lines += ["", *_verdicts(study)]
    lines += [
        "",
        "| run | linear probe | lens | " + " | ".join(NUMBERS.values()) + " |",
        "|---|---:|---|" + "---:|" * len(NUMBERS),
    ]
    for x in sorted(study.readings, key=lambda x: -x.linear):
        numbers = (f"{x.numbers[key]:.2f}" if key in x.numbers else "-" for key in NUMBERS)
        lines.append(f"| {x.name} | {x.linear:.1%} | {x.verdict} | " + " | ".join(numbers) + " |")
    lines += [f"| {name} | - | diverging, which stopped it | " + "- | " * len(NUMBERS) for name in study.diverged]
    lines += ["", f"Failed: {'; '.join(f'{name} ({why})' for name, why in study.failed.items())}."] if study.failed else []
    return "\n".join([*lines, ""])


def _verdicts(study: Study) -> list[str]:
    """What the lens said of runs that learnt and of runs that did not."""
    accuracy, error = study.untrained
    counts = Counter((x.verdict, study.learnt(x)) for x in study.readings)
    said = sorted({verdict for verdict, _ in counts})
    wrong = (("False alarms", study.false_alarms), ("Missed", study.missed))
    return [
        f"The untrained encoder's probe is {accuracy:.1%} (standard error {error:.1%}); more than three standard errors above "
        "it is learnt.",
        "",
        "| the lens says | learnt | not learnt |",
        "|---|---:|---:|",
        *(f"| {verdict} | {counts[verdict, True]} | {counts[verdict, False]} |" for verdict in said),
        "",
        *(f"{what}: {len(names)}{' (' + ', '.join(names) + ')' if names else ''}." for what, names in wrong),
    ]


def _shown(correlation: float, runs: int) -> str:
    return "-" if math.isnan(correlation) else f"{correlation:+.2f} ({runs})"


def _reading(name: str, summary: Mapping[str, Any]) -> Reading:
    held_out: Mapping[str, Any] = summary["held_out"] or {}
    numbers = _numbers(held_out) if held_out else {}
    return Reading(name, summary["linear_top1"], "codes" in held_out, _verdict(summary), numbers)


def _verdict(summary: Mapping[str, Any]) -> str:
    """What the lens says today of what it read, which thresholds may have changed since the run."""
    held_out = summary["held_out"]
    if held_out is None:
        return str(summary["verdict"])
    kind: Any = CodeReadings if "codes" in held_out else Readings
    pairs = None if held_out["pairs"] is None else Pairs(**held_out["pairs"])
    return diagnose(kind(**{**held_out, "pairs": pairs})).name


def _numbers(held_out: Mapping[str, Any]) -> dict[str, float]:
    pairs = held_out["pairs"]
    shared = {"er_bound": pairs["er_bound"], "nearer": pairs["nearer"]}
    if "codes" in held_out:
        entropy = held_out["marginal"] / math.log(held_out["codes"])
        return {**shared, "entropy": entropy, "reconstruction": pairs["reconstruction"]}
    scale = held_out["ceiling"] - held_out["floor"]
    return {
        **shared,
        "entropy": (held_out["entropy"] - held_out["floor"]) / scale,
        "reconstruction": -pairs["alignment"],
        "infonce_bound": pairs["infonce_bound"],
        "rank": held_out["rank"],
        "alignment_uniformity": -(pairs["alignment"] + held_out["uniformity"]),
    }


def _correlation(key: str, group: str, readings: list[Reading]) -> tuple[float, int]:
    wanted = {"all": (True, False), "on the sphere": (False,), "codes": (True,)}[group]
    pairs = [(x.numbers[key], x.linear) for x in readings if key in x.numbers and x.codes in wanted]
    mixed = group == "all" and key in ("reconstruction",)  # of other units for codes
    columns = list(zip(*pairs, strict=True))
    if len(pairs) < 5 or mixed or any(len(set(column)) == 1 for column in columns):  # what never changes orders nothing
        return math.nan, len(pairs)
    return float(spearmanr(*columns).statistic), len(pairs)
