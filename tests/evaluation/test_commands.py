"""`entrec eval`, `embed` and `export` from the command line: what they say of what they did."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner, Result

import entrec
from entrec import cli
from entrec.data.files import from_pil
from entrec.training.run import Run
from tests.training.tiny import as_array, folder_of_files, pixels, quick, write_png


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Of a folder whose name Rich would take for markup, and part of it for an emoji."""
    folder = tmp_path_factory.mktemp("runs") / "[red]a:cat:[/red]"
    return quick("byol", folder / "byol", folder_of_files(folder / "data", uneven=True), epochs=1)


def said(*arguments: str | Path, code: int = 0) -> str:
    result: Result = CliRunner().invoke(cli.app, [str(x) for x in arguments], env={"COLUMNS": "60", "TERM": "dumb"})
    assert result.exit_code == code, result.output
    return result.output


def test_eval_says_whose_encoder_saw_what(run: Run) -> None:
    size = run.config["image_size"]
    for who in ("student", "teacher"):
        output = said("eval", run.folder, "--device", "cpu", "--workers", "0", "--who", who)
        assert (
            f"the {who}'s encoder, frozen; views of {size} x {size} pixels: the whole image, resized (bilinear, antialiased)\n"
            in output
        )
        assert "corrupt" not in output


def test_corrupt_images_are_counted_and_named_as_they_are(run: Run, tmp_path: Path) -> None:
    data = folder_of_files(tmp_path / "[b]", uneven=True)
    bad = sorted(data.glob("train/class1/*.png"))[:4]
    for path in bad:
        path.write_bytes(b"no image")
    told = [f"{path}: it is no image of a kind that Pillow knows" for path in bad]
    words = f"4 unreadable images were skipped: {'; '.join(told[:3])}; ...\n"
    assert words in said("eval", run.folder, "--data", data, "--device", "cpu", "--workers", "1")
    assert words in said("embed", run.folder, "--data", data, "--device", "cpu", "--out", tmp_path / "a.npy")
    for command, out in (("eval", []), ("embed", ["--out", str(tmp_path / "b.npy")])):
        output = said(command, run.folder, *out, "--data", data, "--device", "cpu", "--workers", "0", "--strict", code=2)
        assert f"cannot decode the image {told[0]}".replace(" ", "") in "".join(output.split())
    assert not (tmp_path / "b.npy").exists()


def test_names_that_are_not_utf_8_are_said_with_escapes(run: Run, tmp_path: Path) -> None:
    data = folder_of_files(tmp_path / "data", uneven=True)
    odd = os.fsencode(data / "train" / "class0") + b"/caf\xe9"
    try:
        write_png(Path(os.fsdecode(odd + b"1.png")), pixels(1)[0])
        Path(os.fsdecode(odd + b"2.png")).write_bytes(b"no image")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    output = said("embed", run.folder, "--data", data, "--device", "cpu", "--out", tmp_path / "a.npy", "--workers", "0")
    assert r"caf\udce92.png" in output
    assert r"caf\udce91.png,0,class0" in (tmp_path / "a.csv").read_text()


def test_paths_are_printed_as_they_are(run: Run) -> None:
    out = run.folder / "mine.npy"
    output = said("embed", run.folder, "--device", "cpu", "--out", out)
    assert f"Written to {out} and {run.folder / 'mine.labels.npy'} and {run.folder / 'mine.csv'}\n" in output
    assert f"is in {run.folder / 'mine.pth'}. To load it" in said("export", run.folder, "--out", run.folder / "mine.pth")


def test_export_prints_how_to_prepare_an_image(run: Run, tmp_path: Path) -> None:
    output = said("export", run.folder, "--out", tmp_path / "mine.safetensors")
    names: dict[str, Any] = {}
    exec("\n".join(line[4:] for line in output.splitlines() if line.startswith("    ")), names)
    model: nn.Module = names["model"]
    image = pixels(1)[0]
    assert model(names["transform"](image)[None]).shape == (1, 256)
    colours = Image.fromarray(as_array(image))
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK"):
        wanted = names["transform"](from_pil(colours.convert(mode), 3))
        assert torch.equal(names["transform"](colours.convert(mode)), wanted), mode
    assert output.index("model.load_state_dict") < output.index("transform = ")


def test_options_reach_the_library(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def embed(*_: Any, **how: Any) -> tuple[Path, ...]:
        asked.append(how)
        return (tmp_path,)

    monkeypatch.setattr(entrec, "embed", embed, raising=False)
    for given in ([], ["--labels"], ["--no-labels", "--root", "there", "--strict", "--workers", "3"]):
        said("embed", run.folder, "--out", tmp_path / "a.npy", *given)
    found = [(how["labels"], how["root"], how["strict"], how["workers"]) for how in asked]
    usual = min(4, os.cpu_count() or 1)
    assert found == [(None, None, False, usual), (True, None, False, usual), (False, "there", True, 3)]
    assert "has no labels" in said("eval", run.folder, "--no-labels", "--device", "cpu", code=2)
