"""What one does with a run when it has ended: evaluate, embed, export."""

import csv
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import entrec
from entrec.data import CorruptImage, Held, open_source
from entrec.evaluation.features import extract
from entrec.evaluation.knn import knn_accuracy
from entrec.evaluation.linear import linear_probe
from entrec.training import checkpoint, runs
from entrec.training.encoders import load_encoder
from entrec.training.run import COLUMNS, Metrics, Run
from tests.training.tiny import Cameras, classes, files_in, folder_of_files, pixels, quick, source


@pytest.fixture(scope="module")
def byol(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return quick("byol", tmp_path_factory.mktemp("runs") / "byol")


@pytest.fixture(scope="module")
def simclr(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Of a folder of files."""
    folder = tmp_path_factory.mktemp("runs")
    return quick("simclr", folder / "simclr", folder_of_files(folder / "data", uneven=True))


def weights(run: Run, who: str) -> dict[str, Tensor]:
    prefix = {"student": "encoder.", "teacher": "teacher.module.0."}[who]
    state = checkpoint.load(run.checkpoint).parts["method"]
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


@pytest.mark.parametrize("who", ["student", "teacher"])
def test_evaluation_is_extraction_and_scores_by_hand(who: Any, byol: Run) -> None:
    encoder, data = load_encoder(byol, who), source()
    assert data.test is not None
    train, test = (extract(encoder.backbone.module, split, encoder.prepare) for split in (data.train, data.test))
    found = entrec.evaluate(byol, data=data, who=who, device="cpu")
    assert found.knn.accuracy == knn_accuracy(train, test)
    assert found.linear.accuracy == linear_probe(train, test).accuracy
    assert found.scores[0].protocol.startswith("kNN vote")


def test_evaluation_gives_the_numbers_of_the_summary(byol: Run, simclr: Run) -> None:
    for run, data in ((byol, source()), (simclr, None)):
        found = entrec.evaluate(run, data=data, device="cpu")
        assert run.summary["knn_top1"] == found.knn.accuracy
        assert run.summary["linear_top1"] == found.linear.accuracy


def test_a_run_a_folder_and_a_checkpoint_are_the_same_to_it(byol: Run, tmp_path: Path) -> None:
    copy = tmp_path / "mine.ckpt"
    copy.write_bytes(byol.checkpoint.read_bytes())
    found = [entrec.evaluate(given, data=source(), device="cpu") for given in (byol, byol.folder, str(byol.folder), copy)]
    assert found.count(found[0]) == 4


def test_evaluation_changes_neither_the_encoder_nor_the_run(byol: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = load_encoder(byol)
    before = files_in(byol.folder)
    monkeypatch.setattr(runs, "load_encoder", lambda *_: encoder)
    entrec.evaluate(byol, data=source(), device="cpu")
    wanted = weights(byol, "student")
    found = encoder.backbone.module.state_dict()
    assert found.keys() == wanted.keys()
    assert all(torch.equal(value, wanted[name]) for name, value in found.items())
    assert any("running_mean" in name for name in found)
    assert files_in(byol.folder) == before


def test_the_encoder_is_in_eval_mode_and_sees_plain_images(byol: Run) -> None:
    encoder, images = load_encoder(byol), pixels()
    assert not any(part.training for part in encoder.backbone.module.modules())
    wanted = (images.float() / 255 - 0.4) / 0.25  # as large as the run's images: neither cropped nor resized
    torch.testing.assert_close(encoder.prepare(images), wanted)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (TensorDataset(pixels(), classes()), r"no test split: .*a pair data=\(train, test\) .*or an entrec\.data\.Source"),
        (source(labelled=False), "has no labels"),
        (None, r"trained on a Python data set <colours>: give it as data="),
        (TensorDataset(pixels()[:, :1], classes()), "channels=3, but tensordataset has images of 1"),
    ],
)
def test_data_that_cannot_be_evaluated_are_named(data: Any, words: str, byol: Run) -> None:
    with pytest.raises(ValueError, match=words):
        entrec.evaluate(byol, data=data, device="cpu")


def test_what_is_no_run_is_named(tmp_path: Path, byol: Run) -> None:
    with pytest.raises(FileNotFoundError, match=r"is no run: it holds no config\.yaml"):
        entrec.evaluate(tmp_path, data=source())
    with pytest.raises(FileNotFoundError, match=r"there is no checkpoint .*nowhere\.ckpt"):
        entrec.evaluate(tmp_path / "nowhere.ckpt", data=source())
    with pytest.raises(ValueError, match="who must be"):
        entrec.evaluate(byol, data=source(), who="headmaster")  # type: ignore[arg-type]


@pytest.mark.parametrize("device", ["cuda", "abacus"])
def test_a_device_that_is_not_there_is_named(device: str, byol: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="device"):
        entrec.evaluate(byol, data=source(), device=device)


@pytest.mark.parametrize("who", ["student", "teacher"])
def test_rows_are_in_the_datas_order(who: Any, byol: Run, tmp_path: Path) -> None:
    order = torch.randperm(48, generator=torch.Generator().manual_seed(5))
    data = TensorDataset(pixels()[order], classes()[order])
    paths = entrec.embed(byol, tmp_path / "mine.npy", data=data, who=who, device="cpu")
    assert paths == (tmp_path / "mine.npy", tmp_path / "mine.labels.npy", tmp_path / "mine.csv")
    found = np.load(paths[0])
    encoder = load_encoder(byol, who)
    with torch.no_grad():
        each = torch.cat([encoder.backbone.module(encoder.prepare(image[None])) for image in pixels()[order]])
    np.testing.assert_allclose(found, each.numpy(), rtol=1e-4, atol=1e-5)
    assert found.dtype == np.float32
    assert np.array_equal(np.load(paths[1]), classes()[order].numpy())


def test_safetensors_hold_the_same_as_npy(byol: Run, tmp_path: Path) -> None:
    npy, labels, _ = entrec.embed(byol, tmp_path / "a.npy", data=source(), split="test", device="cpu")
    (path,) = entrec.embed(byol, tmp_path / "a.safetensors", data=source(), split="test", device="cpu")
    found = load_file(path)
    assert np.array_equal(np.load(npy), found["features"].numpy())
    assert np.array_equal(np.load(labels), found["labels"].numpy())
    assert len(found["features"]) == 24


def test_a_folder_of_files_is_embedded_in_the_order_of_its_paths(simclr: Run, tmp_path: Path) -> None:
    folder = Path(simclr.config["data"])
    found = [load_file(entrec.embed(simclr, tmp_path / f"{n}.safetensors", workers=n, device="cpu")[0]) for n in (0, 1)]
    paths = sorted(folder.glob("train/*/*.png"))
    assert found[0]["labels"].tolist() == [int(path.parent.name[-1]) for path in paths]
    assert all(torch.equal(found[0][key], found[1][key]) for key in found[0])


def test_files_without_a_row_are_named(simclr: Run, tmp_path: Path) -> None:
    data = folder_of_files(tmp_path / "data", uneven=True)
    bad = next(data.glob("train/*/007.png"))
    bad.write_bytes(b"no image")
    (path,) = entrec.embed(simclr, tmp_path / "a.safetensors", data=data, device="cpu")
    with safe_open(path, "pt") as file:
        facts = file.metadata()
    assert facts["skipped"] == f"{bad}: it is no image of a kind that Pillow knows"
    assert json.loads(facts["names"]) == [str(path) for path in sorted(data.glob("train/*/*.png")) if path != bad]
    assert json.loads(facts["classes"]) == ["class0", "class1", "class2"]
    assert len(load_file(path)["features"]) == 47


def test_unlabelled_images_have_features_and_no_labels(byol: Run, tmp_path: Path) -> None:
    data = source(labelled=False)
    assert entrec.embed(byol, tmp_path / "a.npy", data=data, device="cpu") == (tmp_path / "a.npy", tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text().splitlines()[:2] == ["place,label,class", "0,-1,"]


def test_each_row_is_named_in_the_list_beside_it(simclr: Run, tmp_path: Path) -> None:
    data = folder_of_files(tmp_path / "data", uneven=True)
    bad = next(data.glob("test/*/004.png"))
    bad.write_bytes(b"no image")
    console = Console(file=io.StringIO(), width=40)
    entrec.embed(simclr, tmp_path / "a.npy", data=data, split="test", device="cpu", workers=1, console=console)
    with (tmp_path / "a.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    kept = [path for path in sorted(data.glob("test/*/*.png")) if path != bad]
    assert [row["path"] for row in rows] == [str(path) for path in kept]
    assert [row["class"] for row in rows] == [path.parent.name for path in kept]
    assert [int(row["label"]) for row in rows] == np.load(tmp_path / "a.labels.npy").tolist()
    told = f"1 unreadable image was skipped: {bad}: it is no image of a kind that Pillow knows\n"
    assert console.file.getvalue() == told  # type: ignore[attr-defined]


@pytest.mark.parametrize("out", ["a.csv", "there.npy", "listed.npy", "there.npy/a.npy", "folder.npy"])
def test_what_cannot_be_written_is_known_before_any_feature(
    out: str, byol: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there.npy").write_text("mine")
    (tmp_path / "listed.csv").write_text("mine")
    (tmp_path / "folder.npy").mkdir()
    monkeypatch.setattr(runs, "extract", lambda *_, **__: pytest.fail("features were computed"))
    monkeypatch.setattr(runs, "load_encoder", lambda *_: pytest.fail("the encoder was loaded"))
    with pytest.raises((ValueError, OSError), match=r"must end in|exists|is no folder|is a folder"):
        entrec.embed(byol, tmp_path / out, data=source(), device="cpu")


def test_evaluation_says_whose_encoder_saw_what_and_what_it_could_not_read(simclr: Run, tmp_path: Path) -> None:
    data = folder_of_files(tmp_path / "data", uneven=True)
    bad = [next(data.glob(name)) for name in ("train/*/007.png", "test/*/003.png")]
    for path in bad:
        path.write_bytes(b"no image")
    found = entrec.evaluate(simclr, data=data, device="cpu")
    size = simclr.config["image_size"]
    assert found.encoder.startswith(f"the student's encoder, frozen; views of {size} x {size} pixels: the whole image, resized")
    assert found.skipped == tuple(f"{path}: it is no image of a kind that Pillow knows" for path in bad)
    assert "47 train and 11 test features" in found.knn.protocol
    with pytest.raises(CorruptImage, match=r"007\.png"):
        entrec.evaluate(simclr, data=data, device="cpu", strict=True)
    with pytest.raises(CorruptImage, match=r"003\.png"):
        entrec.embed(simclr, tmp_path / "a.npy", data=data, split="test", device="cpu", strict=True)
    assert not (tmp_path / "a.npy").exists()


def test_images_without_a_label_do_not_count(byol: Run) -> None:
    data, whole = source(), entrec.evaluate(byol, data=source(), device="cpu")
    partly = dataclasses.replace(
        data, train=Held(torch.cat([pixels(), pixels(9)]), torch.cat([classes(), torch.full((9,), -1)]))
    )
    found = entrec.evaluate(byol, data=partly, device="cpu")
    assert [x.accuracy for x in found.scores] == [x.accuracy for x in whole.scores]
    assert found.linear.protocol == f"{whole.linear.protocol}; left out for want of a label: 9 train"


def test_a_pair_of_data_sets_has_a_test_split(byol: Run) -> None:
    pair = TensorDataset(pixels(), classes()), TensorDataset(pixels(24, 1), classes(24))
    found, wanted = (entrec.evaluate(byol, data=data, device="cpu") for data in (pair, source()))
    assert found.knn.accuracy == wanted.knn.accuracy


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What `open_source` is asked for."""
    asked: list[dict[str, Any]] = []

    def asking(data: Any, **how: Any) -> Any:
        asked.append({"data": data, **how})
        return open_source(data, **how)

    monkeypatch.setattr(runs, "open_source", asking)
    return asked


def told(run: Run, monkeypatch: pytest.MonkeyPatch, **config: Any) -> None:
    encoder = load_encoder(run)
    monkeypatch.setattr(runs, "load_encoder", lambda *_: encoder._replace(config={**encoder.config, **config}))


def test_what_the_run_says_of_its_data_holds_for_them_alone(
    simclr: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[dict[str, Any]]
) -> None:
    told(simclr, monkeypatch, labels=True, root="/data")
    other = folder_of_files(tmp_path / "other")
    for data, given in ((None, {}), (other, {}), (None, {"labels": None, "root": "/mine"}), (other, {"labels": True})):
        entrec.embed(simclr, tmp_path / "a.npy", data=data, device="cpu", overwrite=True, **given)
    assert [(str(x["data"]), x["labels"], x["root"]) for x in opened] == [
        (simclr.config["data"], True, "/data"),
        (str(other), None, None),
        (simclr.config["data"], True, "/mine"),
        (str(other), True, None),
    ]
    assert all(x["channels"] == 3 and x["strict"] is False for x in opened)


def test_labels_can_be_left_out_or_found_in_other_data_than_the_runs(
    simclr: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="has no labels"):
        entrec.evaluate(simclr, device="cpu", labels=False)
    told(simclr, monkeypatch, labels=False)
    with pytest.raises(ValueError, match="has no labels"):
        entrec.evaluate(simclr, device="cpu")
    assert entrec.evaluate(simclr, data=folder_of_files(tmp_path / "other"), device="cpu").knn.accuracy > 0


def test_grey_files_are_read_in_the_encoders_channels(simclr: Run, tmp_path: Path) -> None:
    for path in folder_of_files(tmp_path / "grey").rglob("*.png"):
        Image.open(path).convert("L").save(path)
    (path,) = entrec.embed(simclr, tmp_path / "a.safetensors", data=tmp_path / "grey", device="cpu")
    assert len(load_file(path)["features"]) == 48


def test_of_two_cameras_the_first_is_embedded(tmp_path: Path) -> None:
    run = quick("cmc", tmp_path / "run", Cameras(labelled=True), shared=False)
    both = load_file(entrec.embed(run, tmp_path / "a.safetensors", data=Cameras(), device="cpu")[0])["features"]
    left = load_file(entrec.embed(run, tmp_path / "b.safetensors", data=Held(pixels()), device="cpu")[0])["features"]
    torch.testing.assert_close(both, left)


def test_embedding_overwrites_nothing_unasked(byol: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match=r"a\.npy exists: ask for overwrite=True"):
        entrec.embed(byol, path, data=source(), device="cpu")
    assert path.read_text() == "mine"
    entrec.embed(byol, path, data=source(), overwrite=True, device="cpu")
    assert np.load(path).shape == (48, 256)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"split": "val"}, "split must be"),
        ({"out": "a.csv"}, "must end in .npy or .safetensors"),
        ({"split": "test"}, "no test"),
    ],
)
def test_embedding_says_what_it_cannot_do(given: dict[str, Any], words: str, byol: Run, tmp_path: Path) -> None:
    out = tmp_path / given.pop("out", "a.npy")
    with pytest.raises(ValueError, match=words):
        entrec.embed(byol, out, data=TensorDataset(pixels(), classes()), device="cpu", **given)
    assert list(tmp_path.iterdir()) == []


def broken(run: Run, path: Path, only: str = "") -> Path:
    """The run's checkpoint with weights that are no numbers: all of them, or those named."""
    content = checkpoint.load(run.checkpoint)
    for name, x in content.parts["method"].items():
        if x.is_floating_point() and only in name:
            x.fill_(torch.nan)
    checkpoint.save(path, content)
    return path


def test_an_encoder_whose_weights_are_no_numbers_is_not_scored(byol: Run, tmp_path: Path) -> None:
    path = broken(byol, tmp_path / "broken.ckpt")
    for who in _WHO:
        with pytest.raises(
            ValueError, match=r"^48 of the 48 rows of train features are NaN or infinite, and so are \d+ of the"
        ):
            entrec.evaluate(path, data=source(), who=who, device="cpu")


def test_features_that_are_no_numbers_are_not_written(byol: Run, tmp_path: Path) -> None:
    path = broken(byol, tmp_path / "broken.ckpt", only="encoder.stem.0.weight")
    for out in (tmp_path / "a.npy", tmp_path / "a.safetensors"):
        words = r"^24 of the 24 rows .*1 of the encoder's \d+ tensors \(stem\.0\.weight\): its training has probably diverged"
        with pytest.raises(ValueError, match=words):
            entrec.embed(path, out, data=source(), split="test", device="cpu")
    assert list(tmp_path.iterdir()) == [path]
    assert len(np.load(entrec.embed(path, tmp_path / "a.npy", data=source(), who="teacher", device="cpu")[0])) == 48


def rebuilt(lines: tuple[str, ...]) -> nn.Module:
    names: dict[str, Any] = {}
    exec("\n".join(lines), names)
    model: nn.Module = names["model"]
    return model


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@pytest.mark.parametrize("who", ["student", "teacher"])
def test_the_lines_that_are_printed_load_the_encoder(who: Any, suffix: str, byol: Run, tmp_path: Path) -> None:
    found = entrec.export(byol, tmp_path / f"mine{suffix}", who=who)
    model = rebuilt(found.lines)
    assert found.who == who
    wanted = weights(byol, who)
    assert all(torch.equal(value, wanted[name]) for name, value in model.state_dict().items())
    encoder = load_encoder(byol, who)
    images = encoder.prepare(pixels())
    assert torch.equal(model(images), encoder.backbone.module(images))


def test_the_transform_that_is_printed_prepares_an_image(byol: Run, tmp_path: Path) -> None:
    found = entrec.export(byol, tmp_path / "mine.safetensors")
    names: dict[str, Any] = {}
    exec("\n".join((*found.lines, *found.transform)), names)
    image = pixels(1, side=20)[0]
    wanted = load_encoder(byol).prepare(image[None])
    torch.testing.assert_close(names["transform"](image)[None], wanted)
    assert names["model"](names["transform"](image)[None]).shape == (1, 256)
    with safe_open(found.path, "pt") as file:
        assert json.loads(file.metadata()["std"]) == [0.25] * 3


def test_student_and_teacher_are_not_the_same(byol: Run, tmp_path: Path) -> None:
    student, teacher = (load_file(entrec.export(byol, tmp_path / f"{who}.safetensors", who=who).path) for who in _WHO)
    assert student.keys() == teacher.keys()
    assert all(not torch.equal(student[name], teacher[name]) for name in student if name.endswith("0.weight"))
    assert all(torch.equal(value, student[name]) for name, value in load_file(byol.folder / "encoder.safetensors").items())


_WHO: tuple[Any, ...] = ("student", "teacher")


def test_a_method_without_a_teacher_says_so(simclr: Run, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no teacher: simclr has none"):
        entrec.export(simclr, tmp_path / "mine.pth", who="teacher")
    assert list(tmp_path.iterdir()) == []


def test_byol_without_ema_has_no_teacher(tmp_path: Path) -> None:
    run = quick("byol", tmp_path / "run", ema=None)
    with pytest.raises(ValueError, match="holds no teacher: byol has none at this setting"):
        entrec.export(run, tmp_path / "mine.pth", who="teacher")


def test_export_overwrites_nothing_unasked(byol: Run, tmp_path: Path) -> None:
    path = tmp_path / "mine.pth"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        entrec.export(byol, path)
    assert path.read_text() == "mine"
    entrec.export(byol, path, overwrite=True)


def test_other_peoples_backbones_load_where_they_come_from(tmp_path: Path) -> None:
    run = quick("simclr", tmp_path / "run", backbone="resnet18", epochs=1, checkpoint_every=None)
    model = rebuilt(entrec.export(run, tmp_path / "mine.safetensors").lines)
    assert type(model).__module__.startswith("timm.")
    encoder = load_encoder(run)
    images = encoder.prepare(pixels(2))
    assert torch.equal(model(images), encoder.backbone.module(images))


@pytest.mark.parametrize(
    "cut", ["4,1,0.1", "4,1,0.125,", "4,1,0.125,0.5", "4,1\n", "4,", "\x00\x00\x00"], ids=lambda cut: repr(cut)
)
def test_a_row_that_is_half_written_is_not_read(cut: str, tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text(f"step,epoch,loss,entropy\n3,1,0.5,\n{cut}")
    assert Run(tmp_path).metrics == [{"step": 3, "epoch": 1, "loss": 0.5}]


@pytest.mark.parametrize("begun", ["", "step,ep", "step,epoch\n"])
def test_a_table_that_was_just_begun_has_no_rows(begun: str, tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text(begun)
    assert Run(tmp_path).metrics == []


def test_a_run_begun_with_other_columns_keeps_its_rows_when_it_goes_on(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("step,epoch,forgotten,loss\n1,0,7,0.5\n2,0,7,0.4\n3,0,7,0.3\n4,0")
    Metrics(tmp_path / "metrics.csv", up_to_step=2)
    assert Run(tmp_path).metrics == [{"step": 1, "epoch": 0, "loss": 0.5}, {"step": 2, "epoch": 0, "loss": 0.4}]
    assert (tmp_path / "metrics.csv").read_text().splitlines()[0] == ",".join(COLUMNS)
