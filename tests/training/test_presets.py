"""Presets: what goes before what, what is refused, and that `lightly` is lightly's benchmark, by lightly's own parts."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import CosineAnnealingLR

import entrec
from entrec.data import Held, Source
from entrec.evaluation import Features, knn_accuracy
from entrec.methods import METHODS, Views
from entrec.training.assemble import assemble, optimizer_of
from entrec.training.presets import LIGHTLY, with_preset
from entrec.training.refusals import check_splits
from entrec.training.run import Run
from entrec.training.settings import Settings, settings
from entrec.views import View
from tests.training.tiny import classes, different, pixels, stopped_before

SIDE, IMAGES, BATCH = 16, 192, 64
SHRUNK: dict[str, Any] = {
    "epochs": 1, "backbone": "tiny", "batch_size": BATCH, "image_size": SIDE, "device": "cpu", "workers": 0, "log_every": 1,
    "queue": 128, "hidden": 64, "codes": 32, "prototypes": 16,
}  # fmt: skip


def source() -> Source:
    train, test = (Held(pixels(n, part, SIDE), classes(n)) for part, n in enumerate((IMAGES, 48)))
    return Source("colours", train, test, ("red", "green", "blue"), 3, SIDE, (0.4,) * 3, (0.25,) * 3, backbone="tiny")


def shrunk(method: str, out: Path, **given: Any) -> Run:
    takes = {*Settings.__dataclass_fields__, *METHODS[method].options.__dataclass_fields__}
    takes -= set(METHODS[method].of_own_loss) if given.get("er") else set()
    own = {key: value for key, value in SHRUNK.items() if key in takes}
    return entrec.train(method, preset="lightly", data=source(), out=out, **{**own, **given})


def resolved(method: str, **given: Any) -> Settings:
    return settings(method, with_preset(method, {"preset": "lightly", **given}))


def built(method: str) -> Any:
    """The method as the preset has it, on an encoder of 512 features with a BatchNorm and little else."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Conv2d(3, 512, 4, 4), nn.BatchNorm2d(512), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    options = METHODS[method].options(**resolved(method).options)
    return METHODS[method].build(encoder, 512, options, False, False)


def two_views(k: int = 16) -> Views:
    images = torch.rand(k, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    return Views((images, images.flip(0) * 0.2 + images), torch.arange(k), 2)


def test_what_is_given_goes_before_a_file_and_that_before_the_preset(tmp_path: Path) -> None:
    config = tmp_path / "own.yaml"
    config.write_text("temperature: 0.3\nepochs: 2\n")
    run = shrunk("simclr", tmp_path / "run", config=config, epochs=1)
    wanted = {"epochs": 1, "temperature": 0.3, "rate": 0.12, "weight": 1.0, "preset": "lightly"}
    assert {key: run.config[key] for key in wanted} == wanted
    assert run.summary["preset"] == "lightly"


def test_a_file_can_name_the_preset(tmp_path: Path) -> None:
    config = tmp_path / "own.yaml"
    config.write_text("preset: lightly\n")
    given = {key: value for key, value in SHRUNK.items() if key not in ("codes", "prototypes", "queue")}
    run = entrec.train("simclr", data=source(), config=config, out=tmp_path / "run", **given)
    assert (run.config["preset"], run.config["temperature"]) == ("lightly", 0.5)


def test_without_a_preset_nothing_changes() -> None:
    assert with_preset("cmc", {"epochs": 3}) == {"epochs": 3}
    assert settings("byol", {}).preset is None


def test_a_rate_goes_with_its_optimiser() -> None:
    other = resolved("simclr", optimizer="adamw")
    assert (other.rate, other.weight_decay, other.warmup) == (None, None, 0.0)
    assert resolved("simclr", optimizer="adamw", rate=0.01).rate == 0.01
    assert resolved("simclr", optimizer="sgd").rate == 0.12


def test_an_unknown_preset_is_told_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no preset 'lightyl'; did you mean 'lightly'"):
        entrec.train("simclr", preset="lightyl", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_method_that_it_has_nothing_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'lightly' has nothing for cmc; it is for byol, dino, moco, simclr, swav"):
        entrec.train("cmc", preset="lightly", out=tmp_path / "run")


def test_a_run_goes_on_with_its_preset(tmp_path: Path) -> None:
    whole = shrunk("moco", tmp_path / "whole", epochs=2)
    with stopped_before(4):
        shrunk("moco", tmp_path / "parted", epochs=2)
    parted = entrec.train("moco", data=source(), out=tmp_path / "parted", resume=True)
    assert parted.config == whole.config
    assert different(whole, parted) == []


def test_no_run_goes_on_with_a_preset_that_it_was_not_begun_with(tmp_path: Path) -> None:
    given = {key: value for key, value in SHRUNK.items() if key not in ("codes", "prototypes", "queue")}
    with stopped_before(2):
        entrec.train("simclr", data=source(), out=tmp_path, **given)
    with pytest.raises(ValueError, match="has preset = None"):
        entrec.train("simclr", data=source(), out=tmp_path, resume=True, preset="lightly")


@pytest.mark.parametrize("er", [False, True])
@pytest.mark.parametrize("method", LIGHTLY.methods)
def test_every_method_runs_with_its_own_loss_and_with_er(method: str, er: bool, tmp_path: Path) -> None:
    run = shrunk(method, tmp_path, er=er)
    assert run.summary["objective"] == ("er" if er else "own")
    scored = [row["knn_top1"] for row in run.metrics if "knn_top1" in row]
    assert len(scored) == 1
    assert run.summary["knn_best"] == pytest.approx(scored[0])
    assert run.summary["knn_top1"] == pytest.approx(scored[0], abs=1e-6)  # all images, and the same k and temperature
    assert "k = 192 (all of the bank; 200 asked for), weights exp(s / 0.1)" in run.summary["protocols"][0]
    assert entrec.evaluate(tmp_path, data=source(), device="cpu").knn.accuracy == run.summary["knn_top1"]


def test_the_last_epochs_are_all_scored_and_the_best_is_told(tmp_path: Path) -> None:
    run = shrunk("simclr", tmp_path, epochs=5, evaluate_every=2, evaluate_last=2)
    scored = {int(row["epoch"]) + 1: row["knn_top1"] for row in run.metrics if "knn_top1" in row}
    assert list(scored) == [2, 4, 5]
    best = run.summary["knn_best_epochs"]
    assert run.summary["knn_best"] == max(scored.values()) == scored[best]
    assert best == min(epochs for epochs, score in scored.items() if score == max(scored.values()))


def test_the_protocol_of_all_methods() -> None:
    for method in LIGHTLY.methods:
        found = resolved(method)
        assert (found.data, found.backbone, found.image_size) == ("cifar10", "resnet18", 32)
        assert (found.epochs, found.batch_size, found.warmup) == (200, 512, 0.0)
        assert (found.knn_k, found.knn_temperature, found.knn_all) == (200, 0.1, True)


@pytest.mark.parametrize("method", LIGHTLY.methods)
def test_the_optimiser_is_the_benchmarks(method: str) -> None:
    parts = assemble(resolved(method, backbone="tiny"), source())
    found = optimizer_of(parts.settings, parts.method)
    wanted: Any = {"lr": 6e-2 * 512 / 128, "weight_decay": 5e-4, "momentum": 0.9, "nesterov": False, "dampening": 0}
    if method == "swav":
        wanted = {"lr": 1e-3 * 512 / 128, "weight_decay": 1e-6, "eps": 1e-8}
    assert type(found) is (Adam if method == "swav" else SGD)
    for group in found.param_groups:
        assert {key: group[key] for key in wanted} == pytest.approx(wanted)
    trained = {id(p) for p in parts.method.parameters() if p.requires_grad}
    assert {id(p) for group in found.param_groups for p in group["params"]} == trained


def test_the_rate_is_that_of_their_scheduler_at_every_step(tmp_path: Path) -> None:
    run = shrunk("simclr", tmp_path, epochs=4)
    theirs = SGD([nn.Parameter(torch.zeros(1))], lr=6e-2 * BATCH / 128)
    scheduler, wanted = CosineAnnealingLR(theirs, 4), []
    for _ in range(4):
        wanted += scheduler.get_last_lr() * (IMAGES // BATCH)
        theirs.step()
        scheduler.step()
    assert [row["rate"] for row in run.metrics if "rate" in row] == pytest.approx(wanted, rel=1e-5)


def told(view: View) -> dict[str, Any]:
    look, crop = view.look, view.crop
    around = {name: (1 - getattr(look, name), 1 + getattr(look, name)) for name in ("brightness", "contrast", "saturation")}
    return {
        "size": (crop.size, crop.size), "scale": crop.scale, "ratio": crop.ratio, "filter": crop.filter, "flip": look.flip,
        "jitter": look.jitter, **around, "hue": (-look.hue, look.hue), "grey": look.grey, "blur": look.blur,
        "solarise": look.solarise,
    }  # fmt: skip


def theirs(transforms: list[Any]) -> dict[str, Any]:
    """The same of one of lightly's views, a list of torchvision's transforms and its own."""
    by = {type(x).__name__: x for x in transforms}  # the last of a kind: SwaVTransform has a jitter of nothing before its own
    crop, apply = by["RandomResizedCrop"], by["RandomApply"]
    jitter = apply.transforms[0]
    how = getattr(crop.interpolation, "value", crop.interpolation)
    solarised = by["RandomSolarization"].prob if "RandomSolarization" in by else 0.0
    return {
        "size": tuple(crop.size), "scale": tuple(crop.scale), "ratio": tuple(crop.ratio), "filter": how,
        "flip": by["RandomHorizontalFlip"].p, "jitter": apply.p, "brightness": tuple(jitter.brightness),
        "contrast": tuple(jitter.contrast), "saturation": tuple(jitter.saturation), "hue": tuple(jitter.hue),
        "grey": by["RandomGrayscale"].p, "blur": by["GaussianBlur"].prob, "solarise": solarised,
    }  # fmt: skip


def of_lightly(method: str) -> list[dict[str, Any]]:
    transforms = pytest.importorskip("lightly.transforms", reason="lightly is not installed")
    if method == "dino":
        made = transforms.DINOTransform(global_crop_size=32, n_local_views=0, cj_strength=0.5, gaussian_blur=(0, 0, 0))
        return [theirs(list(x.transform.transforms)) for x in made.transforms]
    if method == "swav":
        sizes = {"crop_sizes": [32], "crop_counts": [2], "crop_min_scales": [0.14], "crop_max_scales": [1.0]}
        made = transforms.SwaVTransform(**sizes, cj_strength=0.5, gaussian_blur=0)
        return [theirs([crop, *rest.transform.transforms]) for crop, rest in (x.transforms for x in made.transforms)]
    made = transforms.SimCLRTransform(input_size=32, cj_strength=0.5, gaussian_blur=0.0)
    return [theirs(list(x.transform.transforms)) for x in made.transforms]


@pytest.mark.parametrize("method", LIGHTLY.methods)
def test_views_are_those_of_lightlys_transforms(method: str) -> None:
    wanted = of_lightly(method)
    found = [told(view) for view in assemble(resolved(method, backbone="tiny"), source()).augment.recipe.views]
    assert len(found) == len(wanted) == 2
    for one, other in zip(found, wanted, strict=True):
        assert one.keys() == other.keys()
        for key, value in one.items():
            assert value == (other[key] if key == "filter" else pytest.approx(other[key])), key


def shapes(*modules: nn.Module) -> list[tuple[int, ...]]:
    return sorted(tuple(p.shape) for module in modules for p in module.parameters())


def test_heads_have_the_shapes_of_lightlys() -> None:
    heads = pytest.importorskip("lightly.models.modules.heads", reason="lightly is not installed")
    assert shapes(built("simclr").projector) == shapes(heads.SimCLRProjectionHead(512, 512, 128))
    byol = built("byol")
    assert shapes(byol.projector) == shapes(heads.BYOLProjectionHead(512, 1024, 256))
    assert shapes(byol.predictor) == shapes(heads.BYOLPredictionHead(256, 1024, 256))
    assert shapes(built("moco").projector) == shapes(heads.MoCoProjectionHead(512, 512, 128))
    swav = built("swav")
    assert shapes(swav.projector) == shapes(heads.SwaVProjectionHead(512, 512, 128))
    assert shapes(swav.prototypes) == [(512, 128)]  # theirs of that time had no bias; newer versions' have
    network = heads.ProjectionHead([(512, 2048, nn.BatchNorm1d(2048), nn.GELU()), (2048, 256, None, None)])
    dino = built("dino")
    assert shapes(dino.head.network) == shapes(network)
    assert shapes(dino.head.last) == [(2048, 256)]


def test_losses_are_lightlys() -> None:
    loss = pytest.importorskip("lightly.loss", reason="lightly is not installed")
    views = two_views()
    simclr = built("simclr")(views)
    assert simclr.loss.item() == pytest.approx(loss.NTXentLoss()(*simclr.student).item(), rel=1e-5)
    byol, cosine = built("byol")(views), loss.NegativeCosineSimilarity()
    (p0, p1), (z0, z1) = byol.sources, byol.targets
    assert byol.loss.item() - 1 == pytest.approx(0.5 * (cosine(p0, z1) + cosine(p1, z0)).item(), rel=1e-5)
    swav = built("swav")(views)
    assert swav.loss.item() == pytest.approx(loss.SwaVLoss()(list(swav.student), []).item(), rel=1e-5)
    dino = built("dino")(views)
    teacher = list(dino.kept[0].chunk(2))
    assert dino.loss.item() == pytest.approx(loss.DINOLoss(output_dim=2048)(teacher, list(dino.student)).item(), rel=1e-5)
    moco = built("moco")
    step, bank = moco(views), loss.NTXentLoss(temperature=0.1, memory_bank_size=(8192, 128))
    bank.memory_bank.bank = moco.queue.rows.clone()
    (q0, q1), (k0, k1) = (tuple(x.detach() for x in side) for side in (step.student, step.targets))
    assert step.loss.item() == pytest.approx(0.5 * (bank(q0, k1) + bank(q1, k0)).item(), rel=1e-5)


def test_statistics_are_of_one_view_at_a_time() -> None:
    views = two_views()
    for method in ("simclr", "swav", "dino"):
        whole = built(method)(views)
        halved = built(method).train()
        alone = [halved.encoder(x) for x in views.images]
        assert torch.allclose(whole.features, alone[0], atol=1e-5)


def test_the_teacher_follows_as_theirs() -> None:
    update_momentum = pytest.importorskip("lightly.models.utils", reason="lightly is not installed").update_momentum
    for method in ("byol", "moco", "dino"):
        ours = built(method)
        head = ours.head if method == "dino" else ours.projector
        student, before = nn.Sequential(ours.encoder, head), copy.deepcopy(ours.teacher.module)
        with torch.no_grad():
            for p in student.parameters():
                p.add_(torch.ones_like(p))
        step = ours(two_views())
        ours.update(step)
        update_momentum(student, before, m=0.99)
        for one, other in zip(ours.teacher.module.parameters(), before.parameters(), strict=True):
            assert torch.allclose(one, other, atol=1e-6)


def test_the_vote_is_lightlys() -> None:
    predict = pytest.importorskip("lightly.utils.benchmarking.knn", reason="lightly is not installed").knn_predict
    g = torch.Generator().manual_seed(0)
    labels: tuple[Tensor, Tensor] = torch.randint(0, 4, (900,), generator=g), torch.randint(0, 4, (300,), generator=g)
    train, test = (nn.functional.one_hot(y, 12) + torch.randn(len(y), 12, generator=g) for y in labels)
    unit = [nn.functional.normalize(x, dim=1) for x in (train, test)]
    wanted = (predict(unit[1], unit[0].T, labels[0], 4, 200, 0.1)[:, 0] == labels[1]).float().mean().item()
    found = knn_accuracy(Features(train, labels[0]), Features(test, labels[1]), k=200, temperature=0.1)
    assert 0.3 < found < 1
    assert found == pytest.approx(wanted, abs=1e-6)


SPLIT: dict[str, Any] = {"backbone": "resnet18", "epochs": 1, "batch_size": 16, "splits": 8, "ema": 0.99, "device": "cpu"}


@pytest.mark.parametrize(
    ("given", "says"), [({"ema": None}, "needs a key branch of its own"), ({"batch_size": 12}, "multiple of the 8 splits")]
)
def test_splits_that_cannot_be_are_refused(given: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says):
        entrec.train("moco", data="shapes", out=tmp_path / "run", **{**SPLIT, **given})


def test_splits_are_for_one_device() -> None:
    with pytest.raises(ValueError, match="splits=8 is for one device"):
        check_splits(settings("moco", SPLIT), 2)
