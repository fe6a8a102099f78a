"""The lens on encoders: a run's, and any of timm's with weights from elsewhere."""

import pickle
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from entrec.cli import app
from entrec.lens import Readings
from entrec.training.held_out import HeldOut
from entrec.training.lens import examine_encoder, matching
from tests.training.tiny import folder_of_files, quick


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of_files(tmp_path_factory.mktemp("data") / "images")


@pytest.fixture(scope="module")
def state() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    found: dict[str, torch.Tensor] = timm.create_model("resnet18", num_classes=7).state_dict()
    return found


def test_a_runs_encoder_is_looked_at_with_its_own_data(data: Path, tmp_path: Path) -> None:
    run = quick("simclr", tmp_path / "run", data)
    found = examine_encoder(run.folder, device="cpu")
    assert isinstance(found.readings, Readings)
    assert (found.readings.rows, found.readings.pairs is not None) == (12, True)
    result = CliRunner().invoke(app, ["lens", str(run.checkpoint), "--out", str(tmp_path / "lens.json")])
    assert result.exit_code == 0, result.output
    assert "ER bound" in result.output


@pytest.mark.parametrize("er", [True, False])
def test_the_objective_of_a_run_is_known(er: bool, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = quick("simclr", tmp_path / "run", data, er=er, epochs=1)
    monkeypatch.setattr(HeldOut, "seen", lambda *_: (torch.ones(12, 8), torch.ones(12, 8), False))
    remedies = examine_encoder(run.folder, device="cpu").verdict.remedies
    assert ("--er" in " ".join(remedies)) is not er


@pytest.mark.parametrize("wrapped", ["", "module.", "module.backbone."])
@pytest.mark.parametrize("kind", [".pt", ".safetensors", "nested"])
def test_weights_from_elsewhere_are_taken_however_they_are_wrapped(
    wrapped: str, kind: str, state: dict[str, torch.Tensor], data: Path, tmp_path: Path
) -> None:
    named = {f"{wrapped}{key}": value for key, value in state.items()}
    path = tmp_path / f"weights{kind if kind.startswith('.') else '.pth'}"
    if kind == ".safetensors":
        save_file(named, path)
    else:
        torch.save({"state_dict": named, "epoch": 3} if kind == "nested" else named, path)
    found = examine_encoder(path, data=data, backbone="resnet18", image_size=96, device="cpu").readings
    assert isinstance(found, Readings)
    assert found.dim == 512


def test_an_encoder_is_looked_at_at_a_size_that_its_weights_fit(
    state: dict[str, torch.Tensor], data: Path, tmp_path: Path
) -> None:
    torch.save(state, tmp_path / "weights.pt")
    found = examine_encoder(tmp_path / "weights.pt", data=data, backbone="resnet18", device="cpu")  # of small images
    assert found.notes[0] == "Looked at: the encoder's features of two views of 96 pixels."


def wrapped_as(name: str, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Checkpoints as others write them: an encoder among heads, teachers and queues."""
    bare = {key: x for key, x in state.items() if not key.startswith("fc.")}
    head = {"0.weight": torch.randn(8, 512), "0.bias": torch.randn(8)}
    if name == "moco":
        own = {f"module.encoder_q.{key}": x for key, x in bare.items()}
        keys = {f"module.encoder_k.{key}": torch.zeros_like(x) for key, x in bare.items()}
        return {
            **own,
            **{f"module.encoder_q.fc.{key}": x for key, x in head.items()},
            **keys,
            "module.queue": torch.randn(8, 64),
        }
    if name == "dino":
        return {**{f"backbone.{key}": x for key, x in bare.items()}, **{f"head.{key}": x for key, x in head.items()}}
    model = timm.create_model("resnet18", num_classes=0)
    model.load_state_dict(bare)
    cut = torch.nn.Sequential(*list(model.children())[:-1])  # lightly's way
    return {
        **{f"backbone.{key}": x for key, x in cut.state_dict().items()},
        **{f"projection_head.layers.{key}": x for key, x in head.items()},
    }


@pytest.mark.parametrize("name", ["moco", "dino", "lightly"])
def test_an_encoder_is_found_among_heads_and_teachers(name: str, state: dict[str, torch.Tensor]) -> None:
    wanted = timm.create_model("resnet18", num_classes=0).state_dict()
    found = matching(wrapped_as(name, state), wanted)
    needed = {key for key in wanted if not key.endswith("num_batches_tracked")}
    assert needed <= found.keys() <= wanted.keys()
    assert all(torch.equal(found[key], state[key]) for key in needed)


def test_weights_of_something_else_match_nothing() -> None:
    wanted = timm.create_model("resnet18", num_classes=0).state_dict()
    assert matching({"a.weight": torch.randn(3, 3)}, wanted) == {}


def test_the_weights_are_the_ones_that_are_used(state: dict[str, torch.Tensor], data: Path, tmp_path: Path) -> None:
    seen = []
    for turned in ((), (0,)):
        torch.save({**state, "conv1.weight": state["conv1.weight"].flip(turned)}, tmp_path / "weights.pt")
        seen.append(
            examine_encoder(tmp_path / "weights.pt", data=data, backbone="resnet18", image_size=96, device="cpu").readings
        )
    assert seen[0] != seen[1]


def test_what_does_not_fit_is_named(state: dict[str, torch.Tensor], data: Path, tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save(state, path)
    for words, says in (
        (["--data", str(data), "--backbone", "resnet50"], "does not fit resnet50"),
        (["--data", str(data), "--backbone", "resnet18", "--image-size", "32"], "another shape for conv1.weight"),  # its stem
        (["--data", str(data), "--backbone", "resnet18", "--image-size", "32"], "--image-size takes another"),
        (["--data", str(data)], "--backbone must say which encoder"),
        (["--data", str(data), "--backbone", "resnet18", "--codes"], "--codes is for embeddings"),
        (["--image-size", "64"], "--image-size is for looking at images"),
        (["--method", "byoll"], "method must be one of"),
        (["--backbone", "resnet18"], "data (--data) must say"),
        (["--data", str(data), "--backbone", "resnet19"], "there is no backbone 'resnet19'"),
    ):
        result = CliRunner().invoke(app, ["lens", str(path), *words])
        assert result.exit_code == 2, result.output
        assert says in " ".join(result.output.split())
    for missing in ("none.pt", "none.safetensors"):
        with pytest.raises(FileNotFoundError, match="there is no file"):
            examine_encoder(tmp_path / missing, data=data, backbone="resnet18")
    (tmp_path / "empty.safetensors").touch()
    with pytest.raises(ValueError, match="is no safetensors file"):
        examine_encoder(tmp_path / "empty.safetensors", data=data, backbone="resnet18")
    torch.save({"model": "none"}, path)
    with pytest.raises(ValueError, match="holds no state dict"):
        examine_encoder(path, data=data, backbone="resnet18")


def test_weights_that_would_run_code_are_refused(data: Path, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (tmp_path / "ran",)  # type: ignore[return-value]

    path = tmp_path / "weights.pt"
    path.write_bytes(pickle.dumps({"weight": Evil()}))
    with pytest.raises(ValueError, match=r"weights\.pt"):
        examine_encoder(path, data=data, backbone="resnet18")
    assert not (tmp_path / "ran").exists()
