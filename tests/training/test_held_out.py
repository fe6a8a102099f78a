"""The lens on a run's held-out views: what it sees, that it changes nothing, and what it does when a run fails."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

import entrec
from entrec.data import Held
from entrec.lens import CodeReadings, Readings, diagnose, look
from entrec.lens.verdict import diverging
from entrec.methods import METHODS, Views
from entrec.training import checkpoint, held_out
from entrec.training.assemble import Parts, assemble
from entrec.training.encoders import load_encoder
from entrec.training.held_out import HeldOut, Look
from entrec.training.loop import DivergedError
from entrec.training.run import Run
from entrec.training.settings import settings
from tests.training.tiny import (
    COMMON,
    HEADS,
    Cameras,
    Modalities,
    every_tensor,
    folder_of_files,
    pixels,
    quick,
    rows,
    source,
    stopped_before,
)

CODES = {"deepcluster", "swav", "dino"}
CPU = torch.device("cpu")


def parts_of(method: str, **given: Any) -> Parts:
    return assemble(settings(method, {**COMMON, **HEADS[method], **given}), source())


def looked(parts: Parts, seed: int = 0) -> Look:
    return HeldOut(parts.source, parts.augment, CPU, seed).look(parts.method, 10.0, parts.settings.method)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_seen(method: str) -> None:
    found = looked(parts_of(method)).readings
    assert isinstance(found, CodeReadings if method in CODES else Readings)
    assert found.rows == 24
    assert found.pairs is not None


def test_a_continuous_dino_is_seen_by_its_bottleneck() -> None:
    found = looked(parts_of("dino", er=True, estimator="joe")).readings
    assert isinstance(found, Readings)
    assert found.dim == HEADS["dino"]["bottleneck"]


@pytest.mark.parametrize("method", ["simclr", "cmc", "byol", "deepcluster", "swav", "dino"])
def test_what_is_seen_is_what_the_loss_compares(method: str) -> None:
    parts = parts_of(method)
    model: Any = parts.method.eval()
    views = parts.augment(pixels(8), torch.Generator().manual_seed(0))
    with torch.no_grad():
        step = model(Views(views, torch.arange(8), parts.augment.recipe.full))
        for view in (0, 1):
            seen = model.see(views[view], view)
            temperature = parts.settings.options["temperature"] if seen.codes else 1.0
            torch.testing.assert_close(seen.values, step.student[view] / temperature)


def test_the_batch_in_which_images_pass_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = parts_of("byol")
    whole = looked(parts).readings
    monkeypatch.setattr(held_out, "_AT_ONCE", 5)
    again = looked(parts).readings
    assert isinstance(whole, Readings)
    assert isinstance(again, Readings)
    assert again.entropy == pytest.approx(whole.entropy, rel=1e-6)
    assert whole.pairs is not None
    assert again.pairs is not None
    assert again.pairs.er_bound == pytest.approx(whole.pairs.er_bound, rel=1e-4)
    assert again.pairs.nearer == whole.pairs.nearer


def test_every_look_is_at_the_same_views_and_those_of_another_seed_at_others() -> None:
    parts = parts_of("simclr")
    first, again, other = looked(parts).readings, looked(parts).readings, looked(parts, seed=1).readings
    assert first == again
    assert first != other


def test_images_are_held_out_where_there_are_any() -> None:
    parts = parts_of("simclr")
    assert isinstance(parts.source.test, Held)
    own = HeldOut(parts.source, parts.augment, CPU, 0)._images
    assert torch.equal(own, parts.source.test.images)  # type: ignore[arg-type]
    without = HeldOut(replace(parts.source, test=None), parts.augment, CPU, 0)
    assert isinstance(parts.source.train, Held)
    assert torch.equal(without._images, parts.source.train.images)  # type: ignore[arg-type]


def test_the_mode_the_gradients_and_the_generators_are_left_alone() -> None:
    parts = parts_of("byol")
    parts.method.train()
    before, state = {name: x.clone() for name, x in parts.method.state_dict().items()}, torch.get_rng_state()
    looked(parts)
    assert parts.method.training
    assert all(torch.equal(x, before[name]) for name, x in parts.method.state_dict().items())
    assert all(p.grad is None for p in parts.method.parameters())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("method", ["byol", "ir", "dino"])
def test_a_run_with_the_lens_is_the_run_without(method: str, tmp_path: Path) -> None:
    runs = [quick(method, tmp_path / str(lens), lens=lens) for lens in (True, False)]
    a, b = (every_tensor(run) for run in runs)
    tensors = [name for name, x in a.items() if isinstance(x, Tensor)]
    assert tensors
    assert all(torch.equal(a[name], b[name]) for name in tensors)
    assert runs[0].summary["verdict"] is not None
    assert runs[1].summary["verdict"] is None
    assert "held_out_er_bound" in runs[0].metrics[-1]
    assert not any("held_out_er_bound" in row for row in runs[1].metrics)


def test_files_and_several_cameras_are_seen_too(tmp_path: Path) -> None:
    files = quick("byol", tmp_path / "files", folder_of_files(tmp_path / "data", uneven=True))
    cameras = quick("cmc", tmp_path / "cameras", Cameras())
    modalities = quick("cmc", tmp_path / "modalities", Modalities(), shared=False)
    for run in (files, cameras, modalities):
        assert [x["epochs"] for x in run.summary["verdicts"]] == [1, 2]
        assert run.metrics[-1]["held_out_entropy"] >= 0


def test_a_file_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    data = folder_of_files(tmp_path / "data", uneven=True)
    (data / "test" / "class0" / "000.png").write_bytes(b"no image")
    run = quick("simclr", tmp_path / "run", data)
    assert "held_out_entropy" in run.metrics[-1]


def test_numbers_that_are_none_are_a_verdict_and_no_error() -> None:
    parts = parts_of("byol")
    with torch.no_grad():
        next(parts.method.parameters()).fill_(torch.nan)
    found = looked(parts)
    assert found.verdict.name == "diverging"
    assert found.readings is None
    assert found.row() == {}


def constant(method: str) -> Look:
    readings = look(torch.ones(20, 4), torch.ones(20, 4))
    return Look(readings, diagnose(readings, method))


def spread(method: str) -> Look:
    z = torch.randn(400, 8, generator=torch.Generator().manual_seed(0))
    readings = look(z, z + 0.5 * torch.randn(400, 8, generator=torch.Generator().manual_seed(1)))
    return Look(readings, diagnose(readings, method))


def as_if(monkeypatch: pytest.MonkeyPatch, *looks: Look) -> None:
    """What the lens sees after each epoch, the last again and again."""
    left = list(looks)
    monkeypatch.setattr(HeldOut, "look", lambda *_: left.pop(0) if len(left) > 1 else left[0])


def test_a_failure_seen_twice_stops_a_run_that_is_asked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_if(monkeypatch, spread("byol"), constant("byol"), spread("byol"), constant("byol"))
    with pytest.warns(UserWarning, match="stopped after 5 epochs, as the lens saw a collapse, or no numbers, twice in a row"):
        run = quick("byol", tmp_path / "run", epochs=8, on_collapse="stop")
    assert [x["verdict"] for x in run.summary["verdicts"]] == ["healthy", "collapsed", "healthy", "collapsed", "collapsed"]
    assert run.summary["epochs"] == 5
    assert run.summary["knn_top1"] is not None
    assert (run.folder / "encoder.safetensors").is_file()


def test_what_looks_like_a_collapse_while_the_bound_rises_or_the_rate_does_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = constant("byol")
    assert isinstance(point.readings, Readings)
    assert point.readings.pairs is not None
    bounds = [replace(point.readings, pairs=replace(point.readings.pairs, er_bound=x)) for x in (0.0, 0.05, 0.1, 0.15)]
    as_if(monkeypatch, *(Look(readings, point.verdict) for readings in bounds))
    run = quick("byol", tmp_path / "rising", epochs=4, on_collapse="stop")
    assert [x["verdict"] for x in run.summary["verdicts"]] == ["collapsed"] * 4
    as_if(monkeypatch, constant("byol"))
    assert quick("byol", tmp_path / "warm", epochs=4, on_collapse="stop", warmup=1.0).summary["epochs"] == 4


def test_otherwise_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_if(monkeypatch, constant("byol"))
    run = quick("byol", tmp_path / "run", epochs=4)
    assert [x["verdict"] for x in run.summary["verdicts"]] == ["collapsed"] * 4
    assert run.summary["epochs"] == 4


def test_a_verdict_is_said_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_if(monkeypatch, spread("byol"), constant("byol"), constant("byol"), spread("byol"))
    console = Console(record=True, width=200, file=io.StringIO())
    quick("byol", tmp_path / "run", epochs=4, console=console)
    text = console.export_text()
    assert text.count("Constant collapse") == 1
    assert "predictor" in text  # BYOL's remedy
    assert text.count("Healthy") == 2  # when it came back, and at the end


def test_a_run_that_goes_on_remembers_what_was_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_if(monkeypatch, constant("byol"))
    quick("byol", tmp_path / "run", epochs=2)
    whole = quick("byol", tmp_path / "whole", epochs=2)
    assert rows(whole)[-1]["held_out_entropy"] == 0.0
    assert every_tensor(whole)["/history/2/0/1"] == "collapsed"


def test_divergence_is_told_by_how_many_rows() -> None:
    assert diverging(3, 7).because == ("3 of 7 rows are NaN, infinite or zero.",)


def test_on_collapse_must_be_one_of_two() -> None:
    with pytest.raises(ValueError, match="on_collapse must be one of warn, stop, got 'panic'"):
        settings("byol", {"on_collapse": "panic"})


def bounded(bound: float) -> Look:
    """A look at which the ER bound was this."""
    seen = spread("byol")
    assert isinstance(seen.readings, Readings)
    assert seen.readings.pairs is not None
    return Look(replace(seen.readings, pairs=replace(seen.readings.pairs, er_bound=bound)), seen.verdict)


def test_the_encoder_with_the_highest_bound_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_if(monkeypatch, *map(bounded, (1.0, 3.0, 2.0, 3.0)))
    run = quick("byol", tmp_path / "run", epochs=4, keep="best-er")
    best, last = checkpoint.load(run.best), checkpoint.load(run.checkpoint)
    assert (best.place.epoch, last.place.epoch) == (2, 4)
    assert run.summary["kept_epochs"] == 2
    weights = load_encoder(run).backbone.module.state_dict()
    assert all(torch.equal(x, best.parts["method"][f"encoder.{name}"]) for name, x in weights.items())
    monkeypatch.undo()
    assert entrec.evaluate(run, device="cpu", data=source()).knn.accuracy == run.summary["knn_top1"]


def test_a_collapse_is_not_kept_for_its_bound_of_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_if(monkeypatch, bounded(-3.0), constant("byol"), bounded(-2.0), bounded(-4.0))
    run = quick("byol", tmp_path / "run", epochs=4, keep="best-er")
    assert run.summary["kept_epochs"] == 3
    as_if(monkeypatch, constant("byol"))
    assert quick("byol", tmp_path / "all", epochs=2, keep="best-er").summary["kept_epochs"] == 1  # where there is no other


def test_the_summary_is_of_the_encoder_that_was_kept(tmp_path: Path) -> None:
    run = quick("byol", tmp_path / "run", epochs=4, keep="best-er")
    kept = run.summary["kept_epochs"]
    row = next(x for x in run.metrics if x["epoch"] == kept - 1 and "held_out_er_bound" in x)
    assert run.summary["held_out_er_bound"] == pytest.approx(row["held_out_er_bound"], rel=1e-4)
    assert run.summary["held_out"]["pairs"]["er_bound"] == pytest.approx(row["held_out_er_bound"], rel=1e-4)
    assert run.summary["infonce_bound"] == pytest.approx(row["held_out_infonce_bound"], rel=1e-4)
    assert run.summary["diagnosis"]["name"] == run.summary["verdict"] == run.summary["verdicts"][kept - 1]["verdict"]
    assert run.summary["diagnosis"]["because"]


def test_rows_have_all_that_the_lens_reads_with_ceilings(tmp_path: Path) -> None:
    wanted = {"entropy", "uniformity", "spread", "reconstruction", "er_bound", "er_ceiling", "infonce_bound", "infonce_ceiling"}
    row = quick("byol", tmp_path / "byol").metrics[-1]
    assert {f"held_out_{key}" for key in (*wanted, "alignment", "nearer")} | {"effective_rank"} <= row.keys()
    codes = quick("swav", tmp_path / "swav").metrics[-1]
    assert {"held_out_entropy", "held_out_conditional", "held_out_er_bound", "held_out_er_ceiling"} <= codes.keys()
    assert 0 < codes["held_out_conditional"] <= 1


def test_a_run_that_diverged_says_so_in_its_summary(tmp_path: Path) -> None:
    with pytest.raises(DivergedError):
        quick("simclr", tmp_path / "run", optimizer="sgd", rate=1e30, warmup=0.0)
    summary = Run(tmp_path / "run").summary
    assert (summary["verdict"], summary["knn_top1"]) == ("diverging", None)
    assert summary["diagnosis"]["remedies"]


def test_the_last_is_kept_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_if(monkeypatch, *map(bounded, (3.0, 1.0)))
    run = quick("byol", tmp_path / "run")
    assert not run.best.exists()
    assert run.kept == run.checkpoint
    assert run.summary["kept_epochs"] == 2


def test_a_run_whose_bound_rises_no_more_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_if(monkeypatch, *map(bounded, (1.0, 2.0, 1.9, 1.8, 1.7)))
    with pytest.warns(UserWarning, match="stopped after 4 epochs, as the ER bound on held-out views has not risen for 2 looks"):
        run = quick("byol", tmp_path / "run", epochs=9, patience=2, keep="best-er")
    assert run.summary["epochs"] == 4
    assert run.summary["kept_epochs"] == 2


def test_what_is_best_is_remembered_when_a_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_if(monkeypatch, *map(bounded, (1.0, 5.0, 2.0)))
    with stopped_before(7):
        quick("byol", tmp_path / "run", epochs=4, keep="best-er")
    as_if(monkeypatch, bounded(3.0))
    run = quick("byol", tmp_path / "run", epochs=4, keep="best-er", resume=True)
    assert checkpoint.load(run.best).place.epoch == 2
    assert run.summary["kept_epochs"] == 2


def test_it_is_said_which_encoder_was_kept_and_when_the_best_one_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finished(out: Path, **given: Any) -> str:
        console = Console(file=io.StringIO(), width=300)
        quick("byol", out, epochs=4, keep="best-er", console=console, **given)
        assert isinstance(console.file, io.StringIO)
        return next(line for line in console.file.getvalue().splitlines() if line.startswith("kept: "))

    as_if(monkeypatch, *map(bounded, (1.0, 5.0, 2.0, 3.0)))
    assert finished(tmp_path / "asked") == "kept: the encoder after epoch 2, of the highest ER bound on held-out views"
    as_if(monkeypatch, *map(bounded, (1.0, 5.0, 2.0)))
    with stopped_before(10):  # after the third epoch, whose checkpoint is not the best one
        quick("byol", tmp_path / "late", epochs=4)
    as_if(monkeypatch, bounded(3.0))
    late = finished(tmp_path / "late", resume=True)
    assert late.startswith("kept: the encoder after epoch 4; that of the highest ER bound, after epoch 2, was not to be kept")
    as_if(monkeypatch, *[Look(None, diverging(3, 7))] * 4)
    assert finished(tmp_path / "none") == "kept: the encoder after epoch 4, as the lens saw no ER bound"


@pytest.mark.parametrize("given", [{"keep": "best-er"}, {"patience": 3}, {"on_collapse": "stop"}], ids=str)
def test_what_needs_the_lens_says_so(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="lens must be true"):
        settings("byol", {"lens": False, **given})


@pytest.mark.parametrize("er", [True, False])
def test_a_run_that_trains_with_er_is_not_told_to(er: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("entrec.lens.verdict.EARLY", 0)
    monkeypatch.setattr(HeldOut, "seen", lambda *_: (torch.ones(40, 8), torch.ones(40, 8), False))
    console = Console(record=True, width=200, file=io.StringIO())
    run = quick("byol", tmp_path / "run", er=er, epochs=1, console=console)
    text = " ".join(run.summary["diagnosis"]["remedies"])
    assert ("--er" in text, "--weight" in text) == (not er, er)
    assert ("--er" in console.export_text()) is not er
