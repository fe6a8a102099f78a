"""What cannot be done is said in words, before anything is written and without anything being lost."""

import io
import re
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from torch import Tensor
from torch.utils.data import TensorDataset

import entrec
from entrec.data import CorruptImage, Held
from entrec.methods import SimCLR
from entrec.training import checkpoint
from entrec.training.assemble import assemble
from entrec.training.loop import DivergedError, Loop
from entrec.training.run import Run
from entrec.training.settings import settings
from tests.training.tiny import (
    COMMON,
    IMAGES,
    Cameras,
    Modalities,
    broken_at,
    classes,
    every_tensor,
    files_in,
    folder_of_files,
    pixels,
    quick,
    rows,
    source,
    stopped_before,
)  # fmt: skip


@pytest.mark.parametrize(
    ("method", "given", "words"),
    [
        ("boyl", {}, "there is no method 'boyl'; did you mean 'byol'"),
        ("byol", {"backbone": "resnet19"}, r"there is no backbone 'resnet19'; the nearest names are .*resnet18"),
        ("byol", {"data": "cifar11"}, "unknown data 'cifar11'.*did you mean 'cifar10'"),
        ("byol", {"data": "no/such/folder"}, "there is no folder or archive 'no/such/folder'"),
        ("byol", {"recipe": "simclir"}, "recipe must be one of .*did you mean 'simclr'"),
        ("byol", {"batch_size": IMAGES + 1}, f"batch_size {IMAGES + 1} is larger than the data set, which has {IMAGES} images"),
        ("byol", {"epoch": 3}, "there is no option 'epoch'; did you mean 'epochs'"),
        ("byol", {"device": "cuda"}, "needs a GPU that PyTorch can use, and there is none"),
        ("byol", {"device": "abacus"}, "device must be auto, cpu or cuda, got 'abacus'"),
        ("simclr", {"ema": 0.9}, "simclr has no option 'ema'"),
    ],
)
def test_what_does_not_exist_is_named_and_nothing_is_written(
    method: str, given: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises((ValueError, FileNotFoundError), match=words):
        entrec.train(method, out=tmp_path / "run", **{"data": source(), **COMMON, **given})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("images", "clusters"), [(48, 4), (10, 2)])
def test_few_images_get_few_clusters(images: int, clusters: int) -> None:
    few = replace(source(), train=Held(pixels(images), classes(images)))
    assert assemble(settings("deepcluster", {"backbone": "tiny"}), few).settings.options["clusters"] == clusters


def test_a_folder_without_images_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "notes.txt").write_text("no image")
    with pytest.raises(FileNotFoundError, match=r"no images in .*data"):
        quick("byol", tmp_path / "run", tmp_path / "data")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["../outside.png", "/outside.png", "a/../../outside.png"])
def test_an_archive_whose_paths_leave_it_is_refused(name: str, tmp_path: Path) -> None:
    folder = folder_of_files(tmp_path / "inside" / "data")
    with tarfile.open(tmp_path / "data.tar", "w") as tar:
        tar.add(folder, "data")
        tar.addfile(tarfile.TarInfo(name))
    before = files_in(tmp_path)
    with pytest.raises(ValueError, match=r"is refused: its member .* leaves the folder"):
        quick("byol", tmp_path / "run", tmp_path / "data.tar")
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("uneven", [True, False])  # decoded when needed, or loaded at the start
def test_corrupt_images_are_skipped_and_named(uneven: bool, tmp_path: Path) -> None:
    data, bad = _with_corrupt(tmp_path / "data", uneven, lambda whole: b"no image")
    console = Console(record=True, width=500)
    run = quick("simclr", tmp_path / "run", data, console=console)
    told = f"{bad}: it is no image of a kind that Pillow knows"
    assert run.summary["skipped"] == [told]
    assert console.export_text().count(told) == 1


@pytest.mark.parametrize("uneven", [True, False])
def test_truncated_images_are_skipped_and_named(uneven: bool, tmp_path: Path) -> None:
    data, bad = _with_corrupt(tmp_path / "data", uneven, lambda whole: whole[: len(whole) * 2 // 3])
    (told,) = quick("simclr", tmp_path / "run", data).summary["skipped"]
    assert re.fullmatch(rf"{re.escape(str(bad))}: .*truncated.*", told)


def _floats(_: bytes) -> bytes:
    content = io.BytesIO()
    Image.fromarray(np.linspace(0, 900, 144, dtype=np.float32).reshape(12, 12)).save(content, "TIFF")
    return content.getvalue()


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("uneven", [True, False])
def test_floating_point_images_are_skipped_with_the_reason(uneven: bool, workers: int, tmp_path: Path) -> None:
    data, bad = _with_corrupt(tmp_path / "data", uneven, _floats)
    console = Console(record=True, width=500)
    told = (
        f"{bad}: floating-point pixels are read where all are within 0 and 1, and these go from 0.0 to 900.0: scale all images "
        "alike, or save them with 8 or 16 bits"
    )
    run = quick("simclr", tmp_path / "run", data, console=console, workers=workers)
    assert run.summary["skipped"] == [told]
    assert console.export_text().count(told) == 1
    with pytest.raises(CorruptImage, match=re.escape(f"cannot decode the image {told}")):
        quick("simclr", tmp_path / "strict", data, strict=True, workers=workers)


@pytest.mark.parametrize("uneven", [True, False])
def test_strictly_a_corrupt_image_stops_the_run(uneven: bool, tmp_path: Path) -> None:
    data, bad = _with_corrupt(tmp_path / "data", uneven, lambda whole: b"no image")
    with pytest.raises(CorruptImage, match=f"cannot decode the image .*{bad.name}"):
        quick("simclr", tmp_path / "run", data, strict=True)


def test_strictly_a_corrupt_image_stops_the_run_from_within_a_worker(tmp_path: Path) -> None:
    data, bad = _with_corrupt(tmp_path / "data", True, lambda whole: b"no image")
    with pytest.raises(CorruptImage, match=f"cannot decode the image .*{bad.name}"):
        quick("simclr", tmp_path / "run", data, strict=True, workers=1)


def test_corrupt_held_out_images_are_no_reason_to_fail(tmp_path: Path) -> None:
    data = folder_of_files(tmp_path / "data", uneven=True)
    bad = next(data.glob("test/*/005.png"))
    bad.write_bytes(b"no image")
    assert quick("simclr", tmp_path / "run", data).summary["knn_top1"] is not None


def test_a_queue_larger_than_the_data_set_is_warned_of(tmp_path: Path) -> None:
    console = Console(record=True, width=500)
    run = quick("moco", tmp_path / "run", queue=IMAGES + 1, console=console)
    assert f"warning: the queue holds {IMAGES + 1} keys but the data set {IMAGES} images" in console.export_text()
    assert len(run.metrics) == 8


def test_a_queue_that_er_does_not_have_is_not_warned_of(tmp_path: Path) -> None:
    console = Console(record=True, width=500)
    run = quick("moco", tmp_path / "run", er=True, console=console)
    assert run.config["queue"] > IMAGES
    assert "the queue holds" not in console.export_text()


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"is not empty; resume=True .* goes on with the run there, overwrite=True"):
        quick("byol", tmp_path / "run")
    assert files_in(tmp_path) == {"run/thesis.txt": b"mine"}
    with pytest.raises(FileExistsError, match=r"thesis\.txt is a file"):
        quick("byol", tmp_path / "run" / "thesis.txt")


def test_a_folder_that_is_no_run_is_not_overwritten(tmp_path: Path) -> None:
    mine = tmp_path / "project"
    (mine / "checkpoints").mkdir(parents=True)
    (mine / "checkpoints" / "best.pt").write_text("mine")
    with pytest.raises(FileExistsError, match="holds files and is no run of entrec's, so it is not overwritten"):
        quick("byol", mine, overwrite=True)
    assert files_in(mine) == {"checkpoints/best.pt": b"mine"}


def test_a_run_that_was_stopped_before_its_first_checkpoint_can_be_replaced(tmp_path: Path) -> None:
    with stopped_before(1):
        quick("byol", tmp_path / "run")
    assert not Run(tmp_path / "run").checkpoint.exists()
    with pytest.raises(FileExistsError, match=r"overwrite=True"):
        quick("byol", tmp_path / "run")
    assert len(quick("byol", tmp_path / "run", overwrite=True).metrics) == 8


def test_going_on_and_replacing_are_not_asked_for_together(simclr: Run) -> None:
    before = files_in(simclr.folder)
    with pytest.raises(ValueError, match=r"--resume.* goes on with a run and .*--overwrite.* replaces it"):
        quick("simclr", simclr.folder, resume=True, overwrite=True)
    assert files_in(simclr.folder) == before


def test_what_is_not_installed_is_named_before_anything_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = quick("simclr", tmp_path / "run")
    before = files_in(run.folder)
    monkeypatch.setattr("entrec.training.train.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install wandb"):
        quick("simclr", run.folder, overwrite=True, wandb=True)
    assert files_in(run.folder) == before


def test_more_clusters_than_images_are_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="clusters must be at most the 48 images of the data set, got 49"):
        quick("deepcluster", tmp_path / "run", clusters=49)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (1, "stopped after 1 of 6 steps; there is no checkpoint yet"),
        (5, "stopped after 5 of 6 steps; --resume goes on from {}"),
    ],
)
def test_a_run_that_is_stopped_by_hand_says_how_it_goes_on(
    step: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Loop._one_step

    def until(self: Loop, fed: Any, measured: bool) -> Any:
        if self.place.step == step:
            raise KeyboardInterrupt
        return original(self, fed, measured)

    monkeypatch.setattr(Loop, "_one_step", until)
    console = Console(record=True, width=500, file=io.StringIO())
    with pytest.raises(KeyboardInterrupt):
        quick("byol", tmp_path / "run", console=console)
    assert told.format(tmp_path / "run" / "checkpoints" / "last.ckpt") in console.export_text().splitlines()


def test_nt_xent_compares_two_views(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="NT-Xent compares 2 views, got views=3: method cmc"):
        quick("simclr", tmp_path / "run", views=3)
    assert quick("simclr", tmp_path / "run", views=3, er=True).config["views"] == 3


def test_corrupt_images_do_not_stop_clustering(tmp_path: Path) -> None:
    data, bad = _with_corrupt(tmp_path / "data", True, lambda content: content[:50])
    run = quick("deepcluster", tmp_path / "run", data)
    weights = checkpoint.load(run.checkpoint).parts["method"]["weights"]
    assert int((weights == 0).sum()) == 1
    (told,) = run.summary["skipped"]
    assert told.startswith(f"{bad}: ")


def test_names_are_shown_as_they_are(tmp_path: Path) -> None:
    data = folder_of_files(tmp_path / "data", uneven=True)
    odd = next(data.glob("train/*/007.png"))
    odd.rename(odd.with_name("old [b] x.png")).write_bytes(b"no image")
    with Path(tmp_path / "shown.txt").open("w") as file:
        quick("simclr", tmp_path / "run", data, epochs=1, console=Console(file=file, width=400))
    assert "old [b] x.png" in (tmp_path / "shown.txt").read_text()


def test_held_out_images_that_cannot_be_read_cost_a_score_and_no_epoch(tmp_path: Path) -> None:
    data = folder_of_files(tmp_path / "data", uneven=True)
    for path in data.glob("test/*/*.png"):
        path.write_bytes(b"no image")
    with Path(tmp_path / "shown.txt").open("w") as file:
        run = quick("simclr", tmp_path / "run", data, scores=False, console=Console(file=file, width=400))
    assert (
        "warning: no kNN score: dataset must hold at least one image that can be read" in (tmp_path / "shown.txt").read_text()
    )
    assert checkpoint.load(run.checkpoint).place.epoch == 2


def test_an_empty_folder_will_do(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    assert len(quick("simclr", tmp_path / "run").metrics) == 8


def test_overwriting_replaces_only_what_a_run_writes(tmp_path: Path) -> None:
    run = quick("simclr", tmp_path / "run")
    (run.folder / "thesis.txt").write_text("mine")
    fresh = quick("byol", tmp_path / "fresh")
    again = quick("byol", tmp_path / "run", overwrite=True)
    assert (run.folder / "thesis.txt").read_text() == "mine"
    assert again.config == fresh.config
    assert rows(again) == rows(fresh)
    assert len(list((again.folder / "tensorboard").iterdir())) == 1


@pytest.mark.parametrize("given", [{"data": "no/such/folder"}, {"batch_size": 100}, {"backbone": "resnet19"}])
def test_overwriting_with_settings_that_do_not_work_loses_nothing(given: dict[str, Any], tmp_path: Path) -> None:
    run = quick("simclr", tmp_path / "run")
    before = files_in(run.folder)
    with pytest.raises((ValueError, FileNotFoundError)):
        quick("byol", tmp_path / "run", overwrite=True, **given)
    assert files_in(run.folder) == before


@pytest.mark.parametrize("method", ["simclr", "cmc", "ir", "moco", "deepcluster", "swav", "byol", "dino"])
def test_a_loss_that_is_no_number_stops_the_run(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_at(4, monkeypatch)
    with pytest.raises(DivergedError, match=r"NaN or infinite at step 5 \(epoch 2\); the last good checkpoint is .*last\.ckpt"):
        quick(method, tmp_path / "run")
    run = Run(tmp_path / "run")
    assert checkpoint.load(run.checkpoint).place.step == 4
    assert _all_finite(run)
    assert [row["step"] for row in run.metrics if "loss" in row] == [1, 2, 3, 4]


def test_it_stops_between_rows_too_before_a_checkpoint_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_at(4, monkeypatch)
    with pytest.raises(DivergedError, match="step 5"):
        quick("byol", tmp_path / "run", log_every=100, checkpoint_every=None)
    assert checkpoint.load(Run(tmp_path / "run").checkpoint).place.step == 3
    assert _all_finite(Run(tmp_path / "run"))


def test_without_a_checkpoint_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_at(0, monkeypatch)
    with pytest.raises(DivergedError, match=r"step 1 \(epoch 1\); there is no checkpoint yet\. .*--resume begins again"):
        quick("byol", tmp_path / "run")


def test_the_last_good_checkpoint_is_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gradient may overflow one step before the loss does: a checkpoint of that moment would be broken."""
    steps: list[int] = []

    def overflow(self: SimCLR) -> None:
        weight = next(self.encoder.parameters())
        if steps[-1] == 3 and weight.grad is not None:
            weight.grad.fill_(torch.nan)

    monkeypatch.setattr(SimCLR, "prepare", lambda self, progress: steps.append(progress.step), raising=False)
    monkeypatch.setattr(SimCLR, "before_step", overflow, raising=False)
    with pytest.raises(DivergedError, match=r"the last good checkpoint is .*last\.ckpt"):
        quick("simclr", tmp_path / "run")  # checkpoints are due after steps 3 and 4
    assert _all_finite(Run(tmp_path / "run"))


def test_a_run_that_diverged_goes_on_from_its_last_good_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = quick("moco", tmp_path / "whole")
    with monkeypatch.context() as patch:
        broken_at(5, patch)
        with pytest.raises(DivergedError):
            quick("moco", tmp_path / "run")
    assert rows(quick("moco", tmp_path / "run", resume=True)) == rows(whole)


def test_what_a_run_that_diverged_is_advised_to_do_can_be_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    advice = (
        r"a new run with a lower --rate than 0\.5: in another folder \(--out\), or in the place of this one \(--overwrite\)\. "
        "--resume goes on from that checkpoint with the same settings"
    )
    with monkeypatch.context() as patch:
        broken_at(5, patch)
        with pytest.raises(DivergedError, match=advice):
            quick("simclr", tmp_path / "run", rate=0.5)
    with pytest.raises(ValueError, match=r"has rate = 0\.5, and cannot go on with 0\.1"):
        quick("simclr", tmp_path / "run", rate=0.1, resume=True)
    assert quick("simclr", tmp_path / "another", rate=0.1).config["rate"] == 0.1
    assert quick("simclr", tmp_path / "run", rate=0.5, resume=True).config["rate"] == 0.5
    assert quick("simclr", tmp_path / "run", rate=0.1, overwrite=True).config["rate"] == 0.1


def test_float32_is_advised_where_it_was_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_at(0, monkeypatch)
    for precision, words in (("bf16", r", or with --precision 32: in another"), ("32", r"than [\d.]+: in another")):
        with pytest.raises(DivergedError, match=words):
            quick("simclr", tmp_path / precision, precision=precision)


@pytest.fixture(scope="module")
def simclr(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return quick("simclr", tmp_path_factory.mktemp("runs") / "simclr")


def test_a_run_of_another_method_does_not_go_on(simclr: Run) -> None:
    before = files_in(simclr.folder)
    with pytest.raises(ValueError, match="is of another method than byol"):
        quick("byol", simclr.folder, resume=True)
    assert files_in(simclr.folder) == before


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"epochs": 5}, "has epochs = 2, and cannot go on with 5"),
        ({"er": True}, "has er = False, and cannot go on with True"),
        ({"dim": 9}, "has dim = 8, and cannot go on with 9"),
        ({"seed": 1}, "has seed = 0, and cannot go on with 1"),
        ({"data": "digits"}, "has data = <colours>, and cannot go on with digits"),
        ({"ema": 0.5}, "simclr has no option 'ema'"),
    ],
)
def test_a_run_does_not_go_on_with_other_settings(given: dict[str, Any], words: str, simclr: Run) -> None:
    before = files_in(simclr.folder)
    with pytest.raises(ValueError, match=words):
        quick("simclr", simclr.folder, resume=True, **given)
    assert files_in(simclr.folder) == before


def test_shapes_are_other_data_like_any(tmp_path: Path) -> None:
    """Though they are the default, which means the run's own data."""
    data = folder_of_files(tmp_path / "data")
    run = quick("simclr", tmp_path / "run", data)
    (tmp_path / "run" / "checkpoints" / "last.ckpt").unlink()  # so that nothing is trained whatever happens
    with pytest.raises(ValueError, match="and cannot go on with shapes"):
        entrec.train("simclr", data="shapes", out=run.folder, resume=True)


def test_a_python_data_set_must_be_given_again(simclr: Run) -> None:
    with pytest.raises(ValueError, match=r"Python data set.*<colours>|<colours>.*data="):
        entrec.train("simclr", out=simclr.folder, resume=True)


@pytest.mark.parametrize("method", ["ir", "simclr"])
def test_another_number_of_images_than_before_is_noticed(method: str, tmp_path: Path) -> None:
    """The steps of an epoch, and what a bank holds, would be others."""
    data = TensorDataset(pixels(), classes())
    run = quick(method, tmp_path / "run", data)
    before = files_in(run.folder)
    with pytest.raises(ValueError, match="images"):
        quick(method, run.folder, TensorDataset(pixels(32), classes(32)), resume=True)
    assert files_in(run.folder) == before


def test_a_folder_that_is_no_run_does_not_go_on(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError, match=r"is no run: it holds no config\.yaml"):
            quick("simclr", folder, resume=True)
    assert files_in(tmp_path) == {"thesis.txt": b"mine"}


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path, simclr: Run) -> None:
    run = quick("simclr", tmp_path / "run", seed=1)
    run.checkpoint.write_bytes(simclr.checkpoint.read_bytes())
    with pytest.raises(ValueError, match="the checkpoint is of another run: seed differ"):
        quick("simclr", run.folder, seed=1, resume=True)


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    run = quick("simclr", tmp_path / "run")
    whole = run.checkpoint.read_bytes()
    for broken in (whole[: len(whole) // 2], b"", b"no checkpoint"):
        run.checkpoint.write_bytes(broken)
        with pytest.raises(ValueError, match=r"last\.ckpt is no checkpoint of entrec's, or is damaged"):
            quick("simclr", run.folder, resume=True)
        assert run.checkpoint.read_bytes() == broken


@pytest.mark.parametrize(("method", "given"), [("cmc", {}), ("simclr", {})])
def test_cameras_of_other_channels_need_an_encoder_each(method: str, given: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"views of 3 and of 1 channels need an encoder each: method cmc with shared=False"):
        quick(method, tmp_path / "run", Modalities(), **given)
    assert not (tmp_path / "run").exists()


class Three(Cameras):
    """Three pictures of each thing."""

    def __getitem__(self, index: int) -> Any:
        left, right = super().__getitem__(index)
        return left, right, left


@pytest.mark.parametrize(("method", "takes"), [("ir", 1), ("moco", 2)])
def test_a_method_that_leaves_views_out_says_so(method: str, takes: int, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=f"{method} takes the first {takes} of a sample's 3 views; cmc takes all"):
        quick(method, tmp_path / "run", Three())


@pytest.mark.parametrize("given", [{"views": 3}, {"views": 3, "shared": False}])
def test_views_that_are_asked_for_fit_those_that_there_are(given: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="views must be 2, as each sample of cameras is, got 3"):
        quick("cmc", tmp_path / "run", Cameras(), **given)


def _with_corrupt(folder: Path, uneven: bool, damage: Callable[[bytes], bytes]) -> tuple[Path, Path]:
    """A folder of images, one of which is damaged."""
    data = folder_of_files(folder, uneven=uneven)
    bad = next(data.glob("train/*/007.png"))
    bad.write_bytes(damage(bad.read_bytes()))
    return data, bad


def _all_finite(run: Run) -> bool:
    return all(bool(x.isfinite().all()) for x in every_tensor(run).values() if isinstance(x, Tensor))
