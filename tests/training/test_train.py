"""What a run does, and what it leaves in its folder."""

import csv
import json
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

import entrec
from entrec.branches.ema import cosine_ema
from entrec.branches.tiny import Tiny
from entrec.data import Held
from entrec.evaluation.features import extract
from entrec.evaluation.knn import knn_accuracy
from entrec.training import checkpoint
from entrec.training import train as train_module
from entrec.training.assemble import assemble, synchronised
from entrec.training.encoders import load_encoder
from entrec.training.feed import Feed
from entrec.training.images import some
from entrec.training.loop import Loop
from entrec.training.run import COLUMNS, Run
from entrec.training.schedule import scaled_rate, warmup_cosine
from entrec.training.settings import settings
from tests.training.tiny import (
    COMMON,
    HEADS,
    IMAGES,
    Cameras,
    Modalities,
    as_array,
    classes,
    different,
    every_tensor,
    files_in,
    folder_of_files,
    pixels,
    quick,
    rows,
    source,
)  # fmt: skip


@pytest.fixture(scope="module")
def byol(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return quick("byol", tmp_path_factory.mktemp("runs") / "byol", er=True)


def test_a_runs_folder_holds_what_it_says(byol: Run) -> None:
    found = files_in(byol.folder)
    (events,) = [name for name in found if name.startswith("tensorboard/")]
    plain = {"config.yaml", "metrics.csv", "summary.json", "encoder.safetensors", "checkpoints/last.ckpt"}
    assert found.keys() == plain | {events}


def test_the_config_is_complete_and_can_be_given_again(byol: Run, tmp_path: Path) -> None:
    assert byol.config | {"method": "byol", "er": True, "data": "<colours>", "image_size": 8, "recipe": "byol"} == byol.config
    assert byol.config["rate"] > 0
    assert byol.config["weight_decay"] >= 0
    assert {"ema", "kappa", "hidden", "dim", "schedule", "estimator", "weight", "views"} < byol.config.keys()
    again = entrec.train("byol", data=source(), config=byol.folder / "config.yaml", out=tmp_path / "again")
    assert again.config == byol.config
    assert different(byol, again) == []


def test_metrics_have_a_row_per_step_and_a_score_per_epoch(byol: Run) -> None:
    with (byol.folder / "metrics.csv").open() as file:
        assert tuple(next(csv.reader(file))) == COLUMNS
    of_steps = [row for row in byol.metrics if "loss" in row]
    scores = [row for row in byol.metrics if "knn_top1" in row]
    assert [row["step"] for row in of_steps] == [1, 2, 3, 4, 5, 6]
    assert [(row["step"], row["epoch"]) for row in scores] == [(3, 0), (6, 1)]
    for row in of_steps:
        assert row["er_bound"] == pytest.approx(row["entropy"] + row["reconstruction"], abs=1e-4)
        assert 0 <= row["probe_top1"] <= 1
        assert row["samples_per_second"] > 0


def test_the_summary_says_what_came_out(byol: Run) -> None:
    summary = json.loads((byol.folder / "summary.json").read_text())
    plain = {"method": "byol", "objective": "er", "dataset": "colours", "epochs": 2, "batch_size": 16, "ema": 0.9, "seed": 0}
    assert {key: summary[key] for key in plain} == plain
    last = [row for row in byol.metrics if row["epoch"] == 1 and "loss" in row]
    for key in ("entropy", "reconstruction", "er_bound", "samples_per_second"):
        assert summary[key] == pytest.approx(sum(row[key] for row in last) / 3, rel=1e-5)
    assert 0 <= summary["linear_top1"] <= 1
    assert summary["knn_top1"] == pytest.approx(byol.metrics[-1]["knn_top1"], abs=1e-5)
    assert summary["wall_seconds"] > 0
    assert summary["skipped"] == []
    assert summary["versions"] | {"torch": torch.__version__.split("+")[0], "python": platform.python_version()} == (
        summary["versions"] | {"torch": summary["versions"]["torch"].split("+")[0]}
    )
    assert len(summary["protocols"]) == 2


def test_the_objective_of_a_run_without_er_is_the_methods_own(tmp_path: Path) -> None:
    assert quick("simclr", tmp_path / "run").summary | {"objective": "own", "ema": None} == Run(tmp_path / "run").summary


def test_tensorboard_has_the_rows_too(byol: Run) -> None:
    events = EventAccumulator(str(byol.folder / "tensorboard"))
    events.Reload()
    of_steps = [row for row in byol.metrics if "loss" in row]
    for key in ("loss", "entropy", "reconstruction", "er_bound", "rate", "probe_top1"):
        found = events.Scalars(key)
        assert [event.step for event in found] == [1, 2, 3, 4, 5, 6]
        assert [event.value for event in found] == pytest.approx([row[key] for row in of_steps], rel=1e-4)
    assert [event.step for event in events.Scalars("knn_top1")] == [3, 6]


def test_the_encoder_loads_into_the_bare_backbone(byol: Run) -> None:
    bare = Tiny(channels=3)
    bare.load_state_dict(load_file(byol.folder / "encoder.safetensors"), strict=True)
    state = checkpoint.load(byol.checkpoint).parts["method"]
    assert all(torch.equal(value, state[f"encoder.{name}"]) for name, value in bare.state_dict().items())


def test_the_knn_score_is_that_of_the_frozen_encoder(byol: Run) -> None:
    encoder, data = load_encoder(byol), source()
    assert data.test is not None
    splits = [extract(encoder.backbone.module, split, encoder.prepare) for split in (data.train, data.test)]
    assert byol.summary["knn_top1"] == knn_accuracy(splits[0], splits[1])


def test_the_summary_has_its_numbers_even_where_epochs_are_shorter_than_the_way_between_rows(tmp_path: Path) -> None:
    summary = quick("simclr", tmp_path / "run", epochs=2, log_every=10).summary
    assert None not in [summary[key] for key in ("entropy", "reconstruction", "er_bound", "samples_per_second")]


def test_without_labels_there_is_neither_probe_nor_score(tmp_path: Path) -> None:
    run = quick("simclr", tmp_path / "run", source(labelled=False))
    assert checkpoint.load(run.checkpoint).parts.keys() == {"method", "optimizer"}
    assert all("probe_top1" not in row and "knn_top1" not in row for row in run.metrics)
    assert (run.summary["knn_top1"], run.summary["linear_top1"], run.summary["protocols"]) == (None, None, [])


@pytest.mark.parametrize("method", ["moco", "deepcluster"])
def test_neither_labels_nor_rows_nor_scores_change_what_is_learnt(method: str, tmp_path: Path) -> None:
    """So no gradient of the probe reaches the encoder, and no evaluation touches a buffer."""
    one = quick(method, tmp_path / "labelled")
    two = quick(method, tmp_path / "not", source(labelled=False), log_every=5, checkpoint_every=None)
    assert [name for name in different(one, two) if name.startswith(("/parts/method", "/parts/optimizer"))] == []


class Unlabelled(Dataset[Any]):
    """Images as NumPy has them, and nothing else."""

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, index: int) -> Any:
        return as_array(pixels()[index])


@pytest.mark.parametrize("labels", [None, False])
def test_any_data_set_of_images_and_labels_will_do(labels: bool | None, tmp_path: Path) -> None:
    run = quick("simclr", tmp_path / "run", TensorDataset(pixels(), classes()), labels=labels)
    assert ("probe_top1" in run.metrics[0]) == (labels is None)
    assert run.config["data"] == "<TensorDataset>"
    assert run.summary["knn_top1"] is None


def test_any_data_set_of_images_will_do(tmp_path: Path) -> None:
    run = quick("byol", tmp_path / "run", Unlabelled())
    assert len([row for row in run.metrics if "loss" in row]) == 6
    assert "probe_top1" not in run.metrics[0]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("labelled", [True, False])
def test_two_cameras_share_an_encoder_or_have_one_each(shared: bool, labelled: bool, tmp_path: Path) -> None:
    run = quick("cmc", tmp_path / "run", Cameras(labelled), shared=shared)
    state = checkpoint.load(run.checkpoint).parts["method"]
    others = {name for name in state if name.startswith("other_encoders.0.")}
    assert bool(others) != shared
    if not shared:
        weight = "stem.0.weight"
        assert not torch.equal(state[f"encoder.{weight}"], state[f"other_encoders.0.{weight}"])
    assert ("probe_top1" in run.metrics[0]) == labelled


def test_two_modalities_have_an_encoder_each_with_their_own_channels(tmp_path: Path) -> None:
    run = quick("cmc", tmp_path / "run", Modalities(), shared=False)
    state = checkpoint.load(run.checkpoint).parts["method"]
    assert [state[f"{name}.stem.0.weight"].shape[1] for name in ("encoder", "other_encoders.0")] == [3, 1]
    assert run.config["recipe"] == "none"  # a sample's views are its own
    assert len([row for row in run.metrics if "loss" in row]) == 6


def test_each_camera_goes_to_its_own_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Tensor, ...]] = []
    original = Feed.views

    def looking(self: Feed, crops: tuple[Tensor, ...], places: Tensor, generator: torch.Generator) -> tuple[Tensor, ...]:
        views = original(self, crops, places, generator)
        seen.append((*views, places))
        return views

    monkeypatch.setattr(Feed, "views", looking)
    cameras = Cameras()
    quick("cmc", tmp_path / "run", cameras, shared=False, recipe="none")
    for left, right, places in seen:
        for view, images in ((left, cameras.left), (right, cameras.right)):
            centred = view - view.mean(dim=(0, 2, 3), keepdim=True)
            wanted = images[places].double() - images[places].double().mean(dim=(0, 2, 3), keepdim=True)
            assert torch.corrcoef(torch.stack([centred.flatten().double(), wanted.flatten()]))[0, 1] > 0.999


def recorded(monkeypatch: pytest.MonkeyPatch, modules: str) -> tuple[list[dict[str, Tensor]], list[float], list[Loop]]:
    """The student's parameters before the first step and after each, the rate of each step, and the loop."""
    students: list[dict[str, Tensor]] = []
    rates: list[float] = []
    loops: list[Loop] = []
    original = Loop._one_step

    def one_step(self: Loop, fed: Any, measured: bool) -> Any:
        student = torch.nn.Sequential(self.method.encoder, getattr(self.method, modules))
        if not students:
            students.append({name: p.detach().double() for name, p in student.named_parameters()})
            loops.append(self)
        row = original(self, fed, measured)
        students.append({name: p.detach().double() for name, p in student.named_parameters()})
        rates.extend({group["lr"] for group in self.update.optimizer.param_groups})
        return row

    monkeypatch.setattr(Loop, "_one_step", one_step)
    return students, rates, loops


@pytest.mark.parametrize(
    ("method", "head", "given"),
    [("byol", "projector", {}), ("moco", "projector", {}), ("dino", "head", {}), ("dino", "head", {"schedule": "cosine"})],
)
def test_the_teacher_is_the_average_of_all_students_so_far(
    method: str, head: str, given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the EMA that was asked for, which moves only where its schedule was asked for too."""
    students, _, loops = recorded(monkeypatch, head)
    quick(method, tmp_path / "run", optimizer="sgd", rate=3.0, **given)
    steps = len(students) - 1
    m = [cosine_ema(0.9, step, steps) if given else 0.9 for step in range(steps)]
    found = dict(loops[0].method.teacher.module.named_parameters())
    for name, value in found.items():
        wanted = students[0][name]
        for coefficient, student in zip(m, students[1:], strict=True):
            wanted = coefficient * wanted + (1 - coefficient) * student[name]
        torch.testing.assert_close(value.double(), wanted, rtol=1e-5, atol=1e-6)
    moved = [name for name in found if not torch.equal(students[0][name], students[-1][name])]
    assert "0.stem.0.weight" in moved


@pytest.mark.parametrize("warmup", [0.0, 0.5])
def test_the_rate_is_the_schedules_at_every_step(warmup: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, rates, _ = recorded(monkeypatch, "projector")
    run = quick("simclr", tmp_path / "run", rate=0.8, warmup=warmup)
    wanted = [scaled_rate(0.8, 16) * warmup_cosine(step, round(6 * warmup), 6) for step in range(6)]
    assert rates == wanted
    assert [row["rate"] for row in run.metrics if "rate" in row] == pytest.approx(wanted, rel=1e-5)


def test_the_same_seed_gives_the_same_run_and_another_seed_another(tmp_path: Path) -> None:
    one, again, other = (quick("ir", tmp_path / f"{i}", negatives=9, seed=seed) for i, seed in enumerate((3, 3, 4)))
    assert different(one, again) == []
    assert rows(one) == rows(again)
    assert rows(one) != rows(other)
    assert "/parts/method/encoder.stem.0.weight" in different(one, other)


def test_what_was_drawn_before_a_run_does_not_matter(tmp_path: Path) -> None:
    one = quick("dino", tmp_path / "one")
    torch.manual_seed(1234)
    torch.rand(17)
    assert different(one, quick("dino", tmp_path / "two")) == []


def test_the_number_of_workers_does_not_matter(tmp_path: Path) -> None:
    data = folder_of_files(tmp_path / "data", uneven=True)
    one, two = (quick("simclr", tmp_path / f"{n}", data, workers=n) for n in (0, 2))
    assert [name for name in different(one, two) if name != "/config/workers"] == []
    assert rows(one) == rows(two)


def test_files_and_archives_give_the_run_that_the_folder_gives(tmp_path: Path) -> None:
    import tarfile

    folder = folder_of_files(tmp_path / "data")
    with tarfile.open(tmp_path / "data.tar.gz", "w:gz") as tar:
        tar.add(folder, "data")
    one, two = (quick("byol", tmp_path / name, tmp_path / name_of) for name, name_of in (("a", "data"), ("b", "data.tar.gz")))
    assert [name for name in different(one, two) if not name.startswith(("/config/data", "/facts/name"))] == []


def test_what_is_given_goes_before_the_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(train_module, "_train", lambda fabric, wanted, *_: seen.append(wanted))
    config = tmp_path / "mine.yaml"
    config.write_text("method: byol\ndata: digits\nepochs: 7\nema: 0.5\n")
    for given in ({}, {"epochs": 8}, {"data": "cifar10"}, {"data": "shapes"}):
        entrec.train("byol", config=config, out=tmp_path / "run", **given)
    assert [(x.data, x.epochs, x.options) for x in seen] == [
        ("digits", 7, {"ema": 0.5}), ("digits", 8, {"ema": 0.5}), ("cifar10", 7, {"ema": 0.5}), ("shapes", 7, {"ema": 0.5}),
    ]  # fmt: skip


def test_a_folder_has_a_name_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    data = folder_of_files(tmp_path / "my.images")
    assert entrec.train("byol", er=True, data=data, **COMMON, **HEADS["byol"]).folder == Path("runs/byol-er-my")


def test_every_tensor_of_a_run_is_finite(byol: Run) -> None:
    assert all(bool(x.isfinite().all()) for x in every_tensor(byol).values() if isinstance(x, Tensor))


def batch_by_default(images: int) -> int:
    parts = assemble(settings("simclr", {"backbone": "tiny"}), replace(source(), train=Held(pixels(images))))
    assert parts.settings.batch_size is not None
    return parts.settings.batch_size


@pytest.mark.parametrize(
    ("images", "batch"),
    [(5000, 256), (2048, 256), (2047, 128), (1024, 128), (300, 32), (256, 32), (255, 16), (48, 16), (16, 16), (15, 8), (2, 2)],
)
def test_the_usual_batch_is_smaller_for_small_data(images: int, batch: int) -> None:
    assert batch_by_default(images) == batch


@pytest.mark.parametrize("images", [128, 300, 600, 2047, 2048])
def test_an_epoch_of_usual_batches_has_eight_steps_and_no_more_than_a_power_of_two_costs(images: int) -> None:
    steps = images // batch_by_default(images)
    assert 8 <= steps < 16


def test_partly_labelled_data_are_scored_by_the_labels_there_are(tmp_path: Path) -> None:
    half = torch.where(torch.arange(IMAGES) < 24, classes(), -1)
    run = quick("simclr", tmp_path / "run", replace(source(), train=Held(pixels(), half)))
    assert 0 <= run.summary["knn_top1"] <= 1
    assert any("left out for want of a label: 24 train" in protocol for protocol in run.summary["protocols"])


def test_a_path_is_kept_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder_of_files(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    run = quick("simclr", Path("run"), "data/")
    assert run.config["data"] == str((tmp_path / "data").resolve())
    quick("simclr", Path("run"), "data", resume=True)


def test_an_ema_that_is_asked_for_stays() -> None:
    def schedule(**given: Any) -> Any:
        return assemble(settings("dino", {"backbone": "tiny", **given}), source()).settings.options["schedule"]

    assert schedule() == "cosine"
    assert schedule(ema=0.8) == "constant"
    assert schedule(ema=0.8, schedule="cosine") == "cosine"


def test_a_small_crop_fits_the_patches_of_a_vit() -> None:
    big = replace(source(), image_size=96)
    parts = assemble(settings("dino", {"backbone": "vit_tiny_patch16_224", "small_crops": 1, "codes": 16}), big)
    assert [view.crop.size for view in parts.augment.recipe.views] == [96, 96, 48]


def test_synchronising_keeps_activations() -> None:
    import timm

    method = nn.Module()
    method.encoder = timm.create_model("efficientnet_b0", num_classes=0, pretrained=False).eval()
    x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        before = method.encoder(x)
        weights = [id(p) for p in method.parameters()]
        synchronised(method)
        assert any(isinstance(part, nn.SyncBatchNorm) for part in method.modules())
        assert [id(p) for p in method.parameters()] == weights  # the optimiser's
        torch.testing.assert_close(method.encoder(x), before)


def test_a_new_clustering_forgets_the_momentum_of_the_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    original = Loop._one_step

    def looking(self: Loop, fed: Any, measured: bool) -> Any:
        memory = self.update.optimizer.state.get(self.method.predictor.weight, {})
        seen.append(any(bool(x.any()) for x in memory.values()))
        return original(self, fed, measured)

    monkeypatch.setattr(Loop, "_one_step", looking)
    quick("deepcluster", tmp_path / "run")
    assert seen == [False, True, True] * 2


@pytest.mark.parametrize("labelled", [True, False])
def test_a_part_of_a_data_set_has_all_classes_and_only_what_has_a_label(labelled: bool) -> None:
    labels = torch.arange(1000) % 10
    held = Held(torch.zeros(1000, 1, 8, 8, dtype=torch.uint8), torch.where(labels < 5, labels, labels if labelled else -1))
    part = some(held, 200)
    assert len(part) == 200
    assert set(part.labels.tolist()) == set(range(10 if labelled else 5))
