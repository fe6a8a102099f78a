"""Checkpoints are there whole or not at all, and hold nothing but tensors and plain values."""

import gc
import os
import pickle
import threading
import weakref
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from entrec.training import checkpoint
from entrec.training import train as train_module
from entrec.training.checkpoint import Content, History, Place, Writer, _own
from entrec.training.encoders import load_encoder
from entrec.training.loop import DivergedError, Loop
from tests.training.tiny import broken_at, every_tensor, quick, stopped_before


def content(step: int = 3) -> Content:
    config, parts = {"method": "byol", "ema": None}, {"method": {"w": torch.arange(step)}}
    return Content(Place(step, 1, 2), config, {"mean": (0.5,)}, parts, History(1.5, ("a.png",)))


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "checkpoints" / "last.ckpt", content())
    found = checkpoint.load(tmp_path / "checkpoints" / "last.ckpt")
    assert found[:3] == content()[:3]
    assert isinstance(found.place, Place)
    assert found.history == History(1.5, ("a.png",))
    assert torch.equal(found.parts["method"]["w"], torch.arange(3))


def test_a_write_that_fails_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "last.ckpt"
    checkpoint.save(path, content(3))
    original: Any = torch.save

    def half(plain: Any, where: Path) -> None:
        original(plain, where)
        os.truncate(where, where.stat().st_size // 2)
        raise OSError("no space left")

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(OSError, match="no space left"):
        checkpoint.save(path, content(4))
    assert checkpoint.load(path).place.step == 3
    assert [file.name for file in tmp_path.iterdir()] == ["last.ckpt"]


def test_what_changes_after_the_call_is_not_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, original = threading.Event(), checkpoint.save

    def when_told(path: Path, held: Content) -> None:
        assert begun.wait(timeout=60)
        original(path, held)

    monkeypatch.setattr(checkpoint, "save", when_told)
    weights = torch.arange(6.0).reshape(2, 3).t()  # of another order in memory
    state = {"weights": weights, "twice": weights, "memory": {0: {"step": torch.tensor(3.0)}}, "groups": [{"lr": 0.1}]}
    writer = Writer()
    writer.save(tmp_path / "last.ckpt", content()._replace(parts=state), also=tmp_path / "best.ckpt")
    weights.zero_()
    begun.set()
    writer.wait()
    found = checkpoint.load(tmp_path / "last.ckpt").parts
    assert torch.equal(found["weights"], torch.arange(6.0).reshape(2, 3).t())
    assert found["weights"].stride() == weights.stride()
    assert found["twice"].data_ptr() == found["weights"].data_ptr()
    assert found["memory"] == {0: {"step": torch.tensor(3.0)}}
    assert found["groups"] == [{"lr": 0.1}]
    assert (tmp_path / "best.ckpt").read_bytes() == (tmp_path / "last.ckpt").read_bytes()


class Pair(NamedTuple):
    one: torch.Tensor
    other: int


def test_all_kinds_of_state_are_copied(tmp_path: Path) -> None:
    module = nn.Sequential(nn.BatchNorm1d(2))
    found = _own({"module": module.state_dict(), "pair": Pair(torch.ones(2), 3), "sparse": torch.eye(2).to_sparse()}, {})
    assert found["module"]._metadata == {"": {"version": 1}, "0": {"version": 2}}  # by which modules know older weights
    assert found["pair"].other == 3
    assert torch.equal(found["pair"].one, torch.ones(2))
    assert torch.equal(found["sparse"].to_dense(), torch.eye(2))


def test_modules_that_ask_for_the_version_of_their_weights_go_on_and_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train_module, "finish", lambda *_: None)  # torchvision's MNASNet loads from no plain file
    given: dict[str, Any] = {"backbone": "mnasnet0_5", "image_size": 32, "epochs": 2, "checkpoint_every": None}
    with stopped_before(4):
        quick("simclr", tmp_path / "run", **given)
    run = quick("simclr", tmp_path / "run", resume=True, **given)
    weights = checkpoint.load(run.checkpoint).parts["method"]
    name, found = next(iter(load_encoder(run).backbone.module.state_dict().items()))
    assert torch.equal(found, weights[f"encoder.{name}"])


def test_what_kept_the_writer_from_its_work_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    writer = Writer()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            writer.save(tmp_path / "last.ckpt", content())
    writer.wait()
    writer.save(tmp_path / "last.ckpt", content())
    writer.wait()
    assert checkpoint.load(tmp_path / "last.ckpt").place.step == 3


def test_a_run_that_diverges_says_so_where_its_checkpoint_could_not_be_written_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, held: Content) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(checkpoint, "save", full)
    broken_at(3, monkeypatch)
    with pytest.raises(DivergedError, match=r"no checkpoint yet \(a later one could not be written: no space left\)"):
        quick("simclr", tmp_path / "run", checkpoint_every=None)


def test_the_copy_is_gone_with_the_file_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[weakref.ref[torch.Tensor]] = []
    monkeypatch.setattr(checkpoint, "save", lambda path, held: copies.append(weakref.ref(held.parts["method"]["w"])))
    writer, gathers = Writer(), gc.isenabled()
    gc.disable()  # page-locked memory is dear: it is not to wait until Python looks for circles
    try:
        writer.save(tmp_path / "last.ckpt", content())
        writer.wait()
        assert [copy() for copy in copies] == [None]
    finally:
        if gathers:
            gc.enable()


def test_training_goes_on_while_an_epochs_checkpoint_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone_on, save, step = threading.Event(), checkpoint.save, Loop._one_step

    def slowly(path: Path, held: Content) -> None:
        assert held.place.step != 3 or gone_on.wait(timeout=60)  # which it would not be if the step waited for the file
        save(path, held)

    def noted(self: Loop, fed: Any, measured: bool) -> Any:
        if self.place.step == 3:
            gone_on.set()
        return step(self, fed, measured)

    monkeypatch.setattr(checkpoint, "save", slowly)
    monkeypatch.setattr(Loop, "_one_step", noted)
    run = quick("simclr", tmp_path / "run")
    assert checkpoint.load(run.checkpoint).place == (6, 2, 0)


def test_a_checkpoint_that_could_not_be_written_ends_the_run_and_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = checkpoint.save

    def full(path: Path, held: Content) -> None:
        if held.place.step == 4:
            raise OSError("no space left")
        save(path, held)

    monkeypatch.setattr(checkpoint, "save", full)
    with pytest.raises(OSError, match="no space left"):
        quick("simclr", tmp_path / "run")
    assert checkpoint.load(tmp_path / "run" / "checkpoints" / "last.ckpt").place.step == 3
    with pytest.raises(OSError, match="no space left"):  # the last one too, behind which no other comes
        quick("simclr", tmp_path / "last", checkpoint_every=None, epochs=1, batch_size=12)


def test_a_file_that_runs_code_is_refused(tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> Any:
            return (Path(tmp_path / "harm").touch, ())

    path = tmp_path / "last.ckpt"
    torch.save({"format": 1, "place": Harmful()}, path)
    with pytest.raises(ValueError, match="is no checkpoint of entrec's"):
        checkpoint.load(path)
    path.write_bytes(pickle.dumps(Harmful(), protocol=2))
    with pytest.raises(ValueError, match="is no checkpoint of entrec's"):
        checkpoint.load(path)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("other", [{"format": 0}, {"state_dict": {}}, torch.zeros(3), [1, 2]])
def test_other_peoples_files_are_refused(other: Any, tmp_path: Path) -> None:
    torch.save(other, tmp_path / "last.ckpt")
    with pytest.raises(ValueError, match=r"last\.ckpt is no checkpoint of entrec's"):
        checkpoint.load(tmp_path / "last.ckpt")


@pytest.mark.parametrize("damaged", [b"", b"words", b"PK\x03\x04 and no more"])
def test_a_damaged_file_is_named(damaged: bytes, tmp_path: Path) -> None:
    (tmp_path / "last.ckpt").write_bytes(damaged)
    with pytest.raises(ValueError, match=r"last\.ckpt is no checkpoint of entrec's"):
        checkpoint.load(tmp_path / "last.ckpt")


def test_one_that_is_damaged_anywhere_is_named_in_few_words(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    checkpoint.save(path, content(3))
    whole = path.read_bytes()
    cut = [whole[:size] for size in range(0, len(whole), max(1, len(whole) // 60))]
    flipped = [whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :] for at in range(0, min(len(whole), 3000), 50)]
    said = []
    for damaged in (*cut, *flipped):
        path.write_bytes(damaged)
        try:
            checkpoint.load(path)  # where a byte says nothing that matters
        except ValueError as error:
            said.append(str(error))
    assert len(said) > len(cut)
    for text in said:
        assert text.startswith(f"{path} is no checkpoint of entrec's, or ")
        assert len(text.removeprefix(str(path))) < 250
        assert "weights_only" not in text


@pytest.mark.parametrize("part", ["config", "facts", "parts", "place", "history"])
def test_one_that_lacks_a_part_is_named(part: str, tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    checkpoint.save(path, content(3))
    held = torch.load(path, weights_only=True)
    del held[part]
    torch.save(held, path)
    with pytest.raises(ValueError, match=rf"last\.ckpt is no checkpoint of entrec's, or is damaged: .*'{part}'"):
        checkpoint.load(path)


def test_whole_models_are_refused_without_advice_to_read_them_all_the_same(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 2), tmp_path / "last.ckpt")
    with pytest.raises(ValueError, match="it holds Python objects") as said:
        checkpoint.load(tmp_path / "last.ckpt")
    assert "weights_only" not in str(said.value)


def test_a_missing_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no checkpoint .*last\.ckpt"):
        checkpoint.load(tmp_path / "last.ckpt")


@pytest.mark.parametrize(
    ("method", "kept"),
    [
        (
            "moco",
            ("queue.rows", "queue.pointer", "queue.filled", "teacher.module.0.stem.0.weight", "teacher.module.1.0.weight"),
        ),
        ("ir", ("bank.entries",)),
        ("deepcluster", ("labels", "weights", "predictor.weight")),
        ("swav", ("prototypes.weight", "queue.rows", "queue.pointer")),
        ("dino", ("centre.value", "teacher.module.0.stem.0.weight")),
        ("byol", ("predictor.0.weight", "teacher.module.0.stem.1.running_mean")),
    ],
)
def test_a_runs_checkpoint_holds_all_that_it_remembers(method: str, kept: tuple[str, ...], tmp_path: Path) -> None:
    run = quick(method, tmp_path / "run")
    found = every_tensor(run)
    assert [name for name in kept if f"/parts/method/{name}" not in found] == []
    assert checkpoint.load(run.checkpoint).place == (6, 2, 0)
    assert all(name.startswith(("/place", "/config", "/facts", "/parts/", "/history")) for name in found)
    assert [path.name for path in run.checkpoint.parent.iterdir()] == ["last.ckpt"]
