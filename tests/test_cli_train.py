"""`entrec train`, `eval`, `embed` and `export` from the command line: what they write, what they say, how they exit."""

import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner, Result

from entrec import cli
from entrec.training import checkpoint
from entrec.training.loop import Loop
from entrec.training.run import Run
from tests.training.tiny import COMMON, HEADS, broken_at, different, files_in, folder_of_files, quick

WIDE = {"COLUMNS": "400", "TERM": "dumb"}


def entrec(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments], env=WIDE)


def small(method: str) -> list[str]:
    return [f"--set={key}={value}" for key, value in {**COMMON, **HEADS[method]}.items()]


def said(result: Result) -> str:
    return " ".join(result.output.split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of_files(tmp_path_factory.mktemp("data") / "images")


@pytest.fixture(scope="module")
def trained(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("runs") / "byol"
    result = entrec("train", "byol", "--er", "--data", folder, "--out", out, *small("byol"))
    assert result.exit_code == 0, result.output
    assert "kNN" in result.output
    assert str(out) in said(result)
    return Run(out)


def test_the_command_is_a_thin_call_of_the_library(trained: Run, folder: Path, tmp_path: Path) -> None:
    assert different(trained, quick("byol", tmp_path / "run", folder, er=True)) == []


def test_options_by_name_are_those_by_set(trained: Run, folder: Path, tmp_path: Path) -> None:
    words = ["--epochs", "2", "--batch-size", "16", "--backbone", "tiny", "--device", "cpu", "--workers", "0", "--ema", "0.9"]
    rest = ["--set", "log-every=1", "--set", "checkpoint_every=4", "--set", "hidden=16", "--set", "dim=8"]
    result = entrec("train", "byol", "--er", "--data", folder, "--out", tmp_path / "run", *words, *rest)
    assert result.exit_code == 0, result.output
    assert Run(tmp_path / "run").config == trained.config


def test_a_runs_config_can_be_given_back(trained: Run, tmp_path: Path) -> None:
    config = trained.folder / "config.yaml"
    assert entrec("train", "byol", "--config", config, "--out", tmp_path / "run").exit_code == 0
    assert different(trained, Run(tmp_path / "run")) == []


@pytest.mark.parametrize(
    ("arguments", "key", "value"),
    [(["byol", "--no-ema"], "ema", None), (["dino", "--no-centring"], "centring", False), (["moco", "--seed=7"], "seed", 7)],
)
def test_short_words_for_what_the_paper_changes(
    arguments: list[str], key: str, value: object, folder: Path, tmp_path: Path
) -> None:
    settings = [word for word in small(arguments[0]) if not word.startswith(f"--set={key}=")]
    result = entrec("train", *arguments, "--data", folder, "--out", tmp_path / "run", *settings)
    assert result.exit_code == 0, result.output
    assert Run(tmp_path / "run").config[key] == value


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["boyl"], "there is no method 'boyl'; did you mean 'byol'?"),
        (["byol", "--backbone", "resnet19"], "there is no backbone 'resnet19'; the nearest names are"),
        (["byol", "--data", "shape"], "unknown data 'shape'"),
        (["byol", "--data", "shape"], "did you mean 'shapes'?"),
        (["byol", "--data", "nowhere/images"], "there is no folder or archive 'nowhere/images'"),
        (["byol", "--batch-size", "1000"], "batch_size 1000 is larger than the data set, which has 48 images"),
        (["byol", "--device", "cuda"], "needs a GPU that PyTorch can use, and there is none; device='cpu' works"),
        (["byol", "--set", "epoch=3"], "there is no option 'epoch'; did you mean 'epochs'?"),
        (["byol", "--data", ""], "got an empty word"),
        (["byol", "--ema", "0.5", "--no-ema"], "--ema 0.5 and --no-ema exclude each other"),
        (["byol", "--set", "out=zz"], "out is no setting of a run; --out says it"),
        (["byol", "--set", "resume=true"], "resume is no setting of a run; --resume says it"),
        (["byol", "--set", "method=moco"], "method is no setting of a run; the first word after `entrec train` says it"),
        (["byol", "--weight", "inf"], "weight must be at least 0 and finite, got inf"),
        (["moco", "--set", "queue=0"], "queue must be at least 1, got 0"),
        (["byol", "--set", "epochs"], "--set takes KEY=VALUE, got 'epochs'"),
        (["byol", "--set", "epochs=["], "epochs"),
        (["byol", "--epochs", "0"], "epochs must be at least 1, got 0"),
        (["simclr", "--ema", "0.9"], "simclr has no option 'ema', which moco, byol, dino have"),
        (["byol", "--config", "nowhere.yaml"], "there is no configuration file nowhere.yaml"),
        (["byol", "--resume"], "is no run: it holds no config.yaml"),
    ],
)
def test_bad_input_is_one_message_and_exit_status_2(
    arguments: list[str], complaint: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.chdir(tmp_path)
    data = [] if "--data" in arguments else ["--data", str(folder)]
    result = entrec("train", *arguments, *data, "--out", tmp_path / "run")
    assert result.exit_code == 2, result.output
    assert complaint in said(result)
    assert "Traceback" not in result.output
    assert not (tmp_path / "run").exists()


def test_a_config_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_bytes("größe: 2\n".encode("latin-1"))
    result = entrec("train", "byol", "--config", tmp_path / "mine.yaml", "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert "mine.yaml is not YAML" in said(result)


def test_a_config_with_an_unknown_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("epochs: 2\nbatchsize: 16\n")
    result = entrec("train", "byol", "--config", tmp_path / "mine.yaml", "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert "there is no option 'batchsize'; did you mean 'batch_size'?" in said(result)


def test_a_config_of_another_method_is_refused(trained: Run, tmp_path: Path) -> None:
    result = entrec("train", "simclr", "--config", trained.folder / "config.yaml", "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert "is for another method than simclr" in said(result)


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    result = entrec("train", "byol", "--data", tmp_path / "data", "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert "no images in" in said(result)


def test_an_archive_that_leaves_its_folder_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "data.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("../outside.png"))
    result = entrec("train", "byol", "--data", tmp_path / "data.tar", "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert "is refused: its member '../outside.png' leaves the folder" in said(result)


def test_a_run_is_neither_overwritten_nor_taken_on_unasked(trained: Run, folder: Path) -> None:
    before = files_in(trained.folder)
    result = entrec("train", "byol", "--er", "--data", folder, "--out", trained.folder, *small("byol"))
    assert result.exit_code == 2
    assert "is not empty" in said(result)
    for arguments, complaint in (
        (["simclr"], "is of another method than simclr"),
        (["byol", "--epochs", "9"], "has epochs = 2, and cannot go on with 9"),
    ):
        result = entrec("train", *arguments, "--out", trained.folder, "--resume")
        assert result.exit_code == 2
        assert complaint in said(result)
    assert files_in(trained.folder) == before


def test_overwrite_keeps_what_is_not_a_runs(folder: Path, tmp_path: Path) -> None:
    run = quick("simclr", tmp_path / "run", folder)
    (run.folder / "thesis.txt").write_text("mine")
    result = entrec("train", "ir", "--data", folder, "--out", run.folder, "--overwrite", *small("ir"))
    assert result.exit_code == 0, result.output
    assert (run.folder / "thesis.txt").read_text() == "mine"
    assert run.config["method"] == "ir"


def test_a_run_goes_on(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["train", "ir", "--data", str(folder), "--out", str(tmp_path / "run"), *small("ir")]
    original = Loop.save

    def interrupt(self: Loop) -> None:
        original(self)
        if self.place.step == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "save", interrupt)
        assert entrec(*arguments).exit_code != 0
    assert entrec("train", "ir", "--out", tmp_path / "run", "--resume").exit_code == 0
    assert different(Run(tmp_path / "run"), quick("ir", tmp_path / "whole", folder)) == []


@pytest.mark.parametrize("workers", [0, 1])
def test_strictly_a_corrupt_image_ends_it_with_its_name(workers: int, tmp_path: Path) -> None:
    data = folder_of_files(tmp_path / "data", uneven=True)
    bad = next(data.glob("train/*/007.png"))
    bad.write_bytes(b"no image")
    arguments = [
        "--data",
        str(data),
        "--out",
        str(tmp_path / "run"),
        *small("simclr"),
        f"--set=workers={workers}",
        "--epochs=3",
    ]
    result = entrec("train", "simclr", "--strict", *arguments)
    assert result.exit_code == 2
    assert f"cannot decode the image {bad}" in said(result)


def test_corrupt_images_are_counted_at_the_end(tmp_path: Path) -> None:
    data = folder_of_files(tmp_path / "data", uneven=True)
    for name in ("007.png", "008.png"):
        next(data.glob(f"train/*/{name}")).write_bytes(b"no image")
    result = entrec("train", "simclr", "--data", data, "--out", tmp_path / "run", *small("simclr"))
    assert result.exit_code == 0
    assert "2 unreadable images were skipped; summary.json says which and why" in said(result)


def test_a_loss_that_is_no_number_ends_it_with_the_last_good_checkpoint(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_at(4, monkeypatch)
    result = entrec("train", "byol", "--data", folder, "--out", tmp_path / "run", *small("byol"))
    assert result.exit_code == 2
    assert f"at step 5 (epoch 2); the last good checkpoint is {Run(tmp_path / 'run').checkpoint}" in said(result)


def test_a_queue_larger_than_the_data_set_is_warned_of(folder: Path, tmp_path: Path) -> None:
    result = entrec("train", "moco", "--data", folder, "--out", tmp_path / "run", *small("moco"), "--set=queue=100")
    assert result.exit_code == 0
    assert "warning: the queue holds 100 keys but the data set 48 images" in said(result)


def test_eval_prints_scores_and_protocols(trained: Run) -> None:
    for given in (trained.folder, trained.checkpoint):
        result = entrec("eval", given, "--device", "cpu")
        assert result.exit_code == 0, result.output
        assert f"kNN {trained.summary['knn_top1']:.1%}" in said(result)
        assert f"linear {trained.summary['linear_top1']:.1%}" in said(result)
        assert "kNN vote: cosine, k = 20" in said(result)


def test_embed_writes_where_it_says(trained: Run, tmp_path: Path) -> None:
    result = entrec("embed", trained.folder, "--out", tmp_path / "a.npy", "--split", "test", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert f"Written to {tmp_path / 'a.npy'} and {tmp_path / 'a.labels.npy'}" in said(result)
    assert np.load(tmp_path / "a.npy").shape == (12, 256)


def test_an_encoder_whose_weights_are_no_numbers_is_one_message_and_exit_status_2(trained: Run, tmp_path: Path) -> None:
    content = checkpoint.load(trained.checkpoint)
    for x in content.parts["method"].values():
        x.fill_(torch.nan if x.is_floating_point() else 0)
    broken = tmp_path / "broken.ckpt"
    checkpoint.save(broken, content)
    for command, out in (("eval", []), ("embed", ["--out", str(tmp_path / "a.npy")])):
        result = entrec(command, broken, *out, "--device", "cpu", "--workers", "0")
        assert result.exit_code == 2, result.output
        assert "48 of the 48 rows" in said(result)
        assert "its training has probably diverged" in said(result)
    assert list(tmp_path.iterdir()) == [broken]


def test_export_prints_lines_that_load_the_encoder(trained: Run, tmp_path: Path) -> None:
    result = entrec("export", trained.folder, "--out", tmp_path / "mine.safetensors", "--who", "teacher")
    assert result.exit_code == 0, result.output
    assert "The teacher's encoder is in" in said(result)
    names: dict[str, nn.Module] = {}
    exec("\n".join(line[4:] for line in result.output.splitlines() if line.startswith("    ")), names)
    assert not names["model"].training


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["eval", "RUN", "--who", "headmaster"], "who must be"),
        (["eval", "RUN", "--device", "abacus"], "device"),
        (["eval", "RUN", "--device", "cuda"], "needs a GPU"),
        (["eval", "nowhere"], "nowhere is no run"),
        (["eval", "RUN", "--data", "nowhere/images"], "there is no folder or archive"),
        (["embed", "RUN", "--out", "a.csv"], "must end in .npy or .safetensors"),
        (["embed", "RUN", "--out", "a.npy", "--split", "val"], "split must be"),
        (["export", "RUN", "--out", "a.onnx"], "must end in .safetensors, .pth or .pt"),
        (["export", "nowhere.ckpt", "--out", "a.pth"], "there is no checkpoint nowhere.ckpt"),
    ],
)
def test_bad_input_of_the_others_too(
    arguments: list[str], complaint: str, trained: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.chdir(tmp_path)
    result = entrec(*(str(trained.folder) if word == "RUN" else word for word in arguments))
    assert result.exit_code == 2, result.output
    assert complaint in said(result)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("train", ("--er", "--data", "--resume", "--overwrite", "--strict", "--set", "--config", "--no-ema", "--no-centring")),
        ("eval", ("--data", "--who", "--device")),
        ("embed", ("--out", "--split", "--who", "--overwrite")),
        ("export", ("--out", "--who", "--overwrite")),
        ("demo", ("--out", "--epochs")),
    ],
)
def test_help_names_what_there_is(command: str, words: tuple[str, ...]) -> None:
    output = entrec(command, "--help").output
    assert [word for word in words if word not in output] == []
