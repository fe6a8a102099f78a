"""From a name and a preset to runs, and from runs to a table, JSON and figures."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from entrec.files import appearing, require_writable
from entrec.paper.grid.claims import ENOUGH
from entrec.paper.grid.experiment import Found
from entrec.paper.grid.fingerprint import differences, fingerprint
from entrec.paper.grid.names import EXPERIMENTS, names_of, wanted
from entrec.paper.grid.presets import PRESETS, Preset
from entrec.paper.grid.trials import Pooled, Trials, made, named_values
from entrec.paper.runner import Cell, Data, Pool, named, opened
from entrec.training.run import Run

FACTS, SEEN = "preset.json", "fingerprint"


class LostError(ValueError):
    """Results that would be lost if they were written again."""


def begin(out: Path, name: str, preset: Preset, seeds: int | None = None, only: Sequence[str] = ()) -> list[Cell]:
    """The cells of a name, in the order in which they are to be run; the folder is theirs from then on.

    Args:
        out: the folder, whose `runs` all names share.
        name: of the experiment, or `all`.
        preset: what all runs share.
        seeds: of each cell; None for the preset's.
        only: patterns of names of runs; none for all.

    Raises:
        ValueError, OSError: the folder holds runs of another preset or of other data, or results of runs that it holds no more
            and that are not among these; no run is named so; or the data cannot be opened.
    """
    found = named(wanted(name, preset).cells(preset, seeds or preset.seeds), only)
    if out.exists() and not out.is_dir():
        raise ValueError(f"runs need a folder, but {out} is a file")
    require_writable(out)
    if preset.images is not None and preset.images < preset.batch:
        raise ValueError(f"images (--images) must be a batch at least, here {preset.batch}, got {preset.images}")
    for each in names_of(name):
        _require_no_loss(out / each / "results.json", out / "runs", [cell.name for cell in found])
    facts = _plain(preset.facts())
    facts["seeds"] = seeds or preset.seeds
    claimed = (out / FACTS).is_file() and any((out / "runs").glob("*"))
    before = named_values(out / FACTS) if claimed else {}
    if claimed:
        _require_same(out, before, facts)
        facts["seeds"] = max(facts["seeds"], before.get("seeds", 1))
    facts[SEEN] = fingerprint(opened(pool_of(out, preset).data))
    if told := differences(before.get(SEEN, facts[SEEN]), facts[SEEN]):  # folders of before it was kept have none
        raise ValueError(f"{out} holds runs on other data ({'; '.join(told)}): choose another folder")
    _write(out / FACTS, json.dumps(facts, indent=1) + "\n")
    return found


def pool_of(
    out: Path, preset: Preset, device: str = "auto", keep: bool = False, devices: int = 1, precision: str | None = None
) -> Pool:
    """Where the runs lie, and what all are given."""
    given: dict[str, Any] = {"epochs": preset.epochs, "evaluate_every": preset.evaluate_every, "device": device}
    given |= {} if devices == 1 else {"devices": devices}
    given |= {} if precision is None else {"precision": str(precision)}
    return Pool(out / "runs", Data(preset.data, preset.images, preset.backbone), given, keep)


def _require_same(out: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse to mix runs; how many seeds there are may change."""
    if before.get("name") != now["name"]:
        raise ValueError(f"{out} holds runs of preset {before.get('name')}, not {now['name']}: choose another folder")
    odd = [key for key in now if key != "seeds" and before.get(key) != now[key]]
    if odd:
        told = "; ".join(f"{key} {before.get(key)} there, {now[key]} now" for key in odd)
        raise ValueError(f"{out} holds runs of another preset ({told}): choose another folder")


def preset_of(out: Path) -> Preset:
    """The preset of the runs in a folder.

    Raises:
        ValueError: it holds none.
    """
    path = out / FACTS
    if not path.is_file():
        raise ValueError(f"{out} holds no runs of the paper's experiments: it has no {FACTS}")
    facts = named_values(path)
    facts.pop(SEEN, None)
    try:
        usual = PRESETS[facts["name"]]
        tuples = {key: tuple(facts[key]) for key in ("fractions", "emas", "weights")}
        found = Preset(**{**facts, **tuples})
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged: {error!r}") from error
    for key, value in asdict(usual).items():
        if key != "images" and type(getattr(found, key)) is not type(value):
            raise ValueError(f"{path} is damaged: {key} is {getattr(found, key)!r}, and should be like {value!r}")
    return found


def render(out: Path, name: str) -> Found:
    """Make table.md, results.json and the figures of a name from the runs that are there.

    Raises:
        ValueError: the folder holds no runs of the paper's experiments.
        LostError: it has results of runs that it does not hold any more.
    """
    preset, experiment = preset_of(out), EXPERIMENTS[name]
    pool, folder = Pooled(out / "runs", preset), out / name
    trials = [pool(setting) for setting in experiment.wanted(preset).all]
    _require_no_loss(folder / "results.json", out / "runs")
    folder.mkdir(parents=True, exist_ok=True)
    found = experiment.found(pool, folder)
    _write(folder / "table.md", markdown(name, preset, found, trials))
    _write(folder / "results.json", json.dumps(_plain(_document(name, preset, found, trials)), indent=1) + "\n")
    return found


def _require_no_loss(path: Path, runs: Path, to_come: Sequence[str] = ()) -> None:
    """What was written from runs that are gone, and that are not to come, cannot be written again."""
    try:
        told = {f"{x['name']}-seed{seed}" for x in named_values(path)["settings"] for seed in x["runs"]}
    except (OSError, ValueError, KeyError, TypeError):  # there are none, or none that could be read
        return
    gone = sorted(name for name in told - set(to_come) if not (runs / name).is_dir())
    if gone:
        raise LostError(
            f"{path} tells of runs that are not in {runs} any more ({', '.join(gone)}), and what it tells of them would be "
            "lost: bring their folders back, or move that file away to render without them"
        )


def command(name: str, preset: Preset) -> str:
    """That makes the runs again: only what differs from the preset as it is kept here stands in it."""
    usual, words = PRESETS[preset.name], [f"entrec paper {name} --preset {preset.name}"]
    for key in ("data", "epochs", "images", "seeds"):
        value = getattr(preset, key)
        words += [] if value == getattr(usual, key) else [f"--{key} {Path(value).name if key == 'data' else value}"]
    return " ".join(words)


def markdown(name: str, preset: Preset, found: Found, trials: Sequence[Trials]) -> str:
    """Title, how it was made, claims, tables, figures."""
    claims = EXPERIMENTS[name].wanted(preset).claims
    made_of = _made(trials, [x for x in trials if x.setting in claims])
    lines = [f"# {EXPERIMENTS[name].title}", "", f"    {command(name, preset)}", "", _protocol(preset), "", *made_of]
    lines += ["## The paper's claims", "", "| claim | | the numbers |", "|---|---|---|"]
    lines += [claim.markdown() for claim in found.claims]
    lines += ["", *(line for table in found.tables for line in table.markdown())]
    for path, what in found.figures:
        shown, _, more = what.partition(". ")
        lines += [f"![{shown}]({path.name})", "", *([more, ""] if more else [])]
    return "\n".join(lines)


def _protocol(preset: Preset) -> str:
    data = Path(preset.data).name + ("" if preset.images is None else f" ({preset.images} images)")
    rates = f"learning rate {preset.rate:g} for 256 images"
    rates += "".join(f", {method} {rate:g}" for method, rate in preset.rates.items())
    options = "; ".join(f"{m}: " + ", ".join(f"{k} {v}" for k, v in own.items()) for m, own in preset.options.items())
    told = f"{data}, {preset.backbone}, {preset.epochs} epochs, batch {preset.batch}, {rates}. {options}."
    return told + (" **Reduced size**: nothing here is to be compared with the paper's." if preset.name == "quick" else "")


def _made(trials: Sequence[Trials], carrying: Sequence[Trials]) -> list[str]:
    """On what, in which time, and what failed or is missing."""
    runs = [run for x in trials for run in x.runs.values()]
    lines = []
    if runs:
        seconds = sum(run.summary["wall_seconds"] or 0.0 for run in runs)
        devices = sorted({_device(run) for run in runs})
        versions = sorted({f"torch {run.summary['versions']['torch']}" for run in runs})
        seeds = sorted({seed for x in trials for seed in x.runs})
        number = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
        lines += [
            f"{number}, {seconds / 60:.1f} minutes of training in all: {', '.join(devices)}; {', '.join(versions)}; "
            f"seeds {', '.join(map(str, seeds))}.{_few(carrying)}",
            "",
        ]
        lines += _by_device(trials) if len(devices) > 1 else []
    failed = [f"{x.name}-seed{seed} ({reason})" for x in trials for seed, reason in x.failures.items()]
    missing = [x.name for x in trials if x.state == "not run"]
    lines += [f"Failed: {'; '.join(failed)}.", ""] if failed else []
    return lines + ([f"Not run: {', '.join(missing)}.", ""] if missing else [])


def _by_device(trials: Sequence[Trials]) -> list[str]:
    """Which runs were made on what, but for the most common; between them a seed has not the same draws."""
    found: dict[str, list[str]] = {}
    for x in trials:
        for seed, run in x.runs.items():
            found.setdefault(_device(run), []).append(f"{x.name}-seed{seed}")
    fewer = sorted(found.items(), key=lambda item: len(item[1]))[:-1]
    return [*(f"On {device}: {', '.join(names)}." for device, names in fewer), ""]


def _device(run: Run) -> str:
    """On what a run was made, on how many of them, and in which precision where that is not the device's own."""
    number, device = run.config.get("devices", 1), str(made(run).get("device", run.config["device"]))
    device = device if number == 1 else f"{number} x {device}"
    return f"{device} ({precision})" if (precision := run.config.get("precision")) else device


def _few(carrying: Sequence[Trials]) -> str:
    """What to know where a claim stands on few seeds; other settings may have more."""
    fewest = min((len(x.runs) for x in carrying if x.runs), default=ENOUGH)
    if fewest >= ENOUGH:
        return ""
    if fewest == 1:
        return " With a single seed, which some settings of the claims have, no difference can be told from chance."
    return f" Some settings of the claims have {fewest} seeds, which tell little of chance."


def _document(name: str, preset: Preset, found: Found, trials: Sequence[Trials]) -> dict[str, Any]:
    return {
        "name": name,
        "command": command(name, preset),
        "preset": preset.facts(),
        "claims": [x.facts() for x in found.claims],
        "tables": [{"title": x.title, "columns": list(x.columns), "rows": [list(row) for row in x.rows]} for x in found.tables],
        "settings": [_numbers(x) for x in trials],
        **found.numbers,
    }


def _numbers(trials: Trials) -> dict[str, Any]:
    """A setting's runs, seed by seed."""
    keys = ("linear_top1", "knn_top1", "entropy", "reconstruction", "er_bound", "held_out_entropy", "held_out_er_bound")
    runs = {
        seed: {
            **{key: summary.get(key) for key in (*keys, "infonce_bound", "verdict", "wall_seconds")},
            **made(trials.runs[seed]),
        }
        for seed, summary in trials.summaries.items()
    }
    return {"name": trials.name, "state": trials.state, "runs": runs, "failures": trials.failures}


def _plain(x: Any) -> Any:
    """As JSON gives it back."""
    return json.loads(json.dumps(x))


def _write(path: Path, text: str) -> None:
    with appearing(path) as unfinished:
        unfinished.write_text(text)
