"""The lens under the real Trainers: ours, plain modules, and lightly's under pytorch_lightning."""

import copy
import csv
import math
import pickle
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import entrec
from entrec import LensCallback, VonMisesFisher
from entrec.lens import diagnose, look
from entrec.lens.verdict import EARLY
from entrec.losses import ERLoss
from entrec.methods import METHODS, Seen
from entrec.training import Pretraining
from entrec.views import Augment, recipe

pytestmark = pytest.mark.filterwarnings("ignore:::(lightning|pytorch_lightning|lightly|torch)")
QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}
ON_SPHERE = {"entropy", "entropy_scale", "uniformity", "effective_rank", "std_min", "std_median", "infonce_bound", "alignment"}
ON_BOTH = {"reconstruction", "er_bound", "er_ceiling", "infonce_ceiling", "nearer"}


def network() -> nn.Sequential:
    """With all that an evaluation could disturb: statistics and random numbers."""
    return nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 16))


class Small(pl.LightningModule):
    """Two noisy copies of the data, whose projections are spread out, or pulled to one place."""

    def __init__(self, pull: bool = False, rate: float = 0.03) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net, self.loss, self.pull, self.rate = network(), ERLoss(VonMisesFisher(10.0)), pull, rate

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.net(x)
        return found

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        z1, z2 = (self(batch[0] + 0.2 * torch.randn_like(batch[0])) for _ in range(2))
        loss: Tensor = (z1 - 1).square().mean() if self.pull else self.loss(z1, z2)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), self.rate)


def two(module: Any, batch: Any) -> tuple[Tensor, Tensor]:
    return module(batch[0]), module(batch[0] + 0.2 * torch.randn_like(batch[0]))


def data(rows: int = 512, batch: int = 64, seed: int = 0, shuffle: bool = False) -> DataLoader[Any]:
    points = torch.randn(rows, 8, generator=torch.Generator().manual_seed(seed))
    return DataLoader(TensorDataset(points), batch, shuffle=shuffle)


def fit(module: Any, *callbacks: Any, steps: int = 20, loader: Any = None, **options: Any) -> pl.Trainer:
    trainer = pl.Trainer(max_steps=steps, **{"logger": False, **QUIET, **options}, callbacks=list(callbacks))
    trainer.fit(module, data(shuffle=True) if loader is None else loader)
    return trainer


def names(lens: LensCallback) -> list[str]:
    return [verdict.name for _, verdict in lens.history]


def test_a_module_of_ones_own_takes_a_line_and_stays_healthy() -> None:
    lens = LensCallback(two, every=10, on_collapse="stop", held_out=data(seed=1), held_out_every=1)
    trainer = fit(Small(), lens, steps=40)
    assert trainer.global_step == 40
    assert [step for step, _ in lens.history] == [10, 20, 30, 40]
    assert lens.verdict is not None
    assert lens.verdict.name == "healthy"
    wanted = {f"{name}/{key}" for name in ("lens", "lens_held_out") for key in ON_SPHERE | ON_BOTH}
    assert wanted == set(trainer.callback_metrics)


def test_what_is_logged_is_what_look_reads_in_eval_mode() -> None:
    module, points = Small(), next(iter(data(seed=3, rows=300, batch=300)))
    lens = LensCallback(lambda m, batch: (m(batch[0]), m(batch[0].flip(1))), every=EARLY, held_out=points, kappa=5.0)
    with pytest.warns(UserWarning, match=f"Lens at step {EARLY}"):
        trainer = fit(module, lens, steps=EARLY)
    module.eval()
    with torch.no_grad():
        found = look(module(points[0]), module(points[0].flip(1)), kappa=5.0)
    assert found.pairs is not None
    logged = {key.removeprefix("lens_held_out/"): float(x) for key, x in trainer.callback_metrics.items() if "held" in key}
    assert logged["entropy"] == pytest.approx(found.entropy, rel=1e-6)
    assert logged["entropy_scale"] == pytest.approx(found.filled, rel=1e-6)
    assert logged["effective_rank"] == pytest.approx(found.rank, rel=1e-6)
    assert logged["std_min"] == pytest.approx(found.spread[0], rel=1e-6)
    assert logged["er_bound"] == pytest.approx(found.pairs.er_bound, rel=1e-6)
    assert logged["infonce_ceiling"] == pytest.approx(math.log(300))
    assert lens.verdict == diagnose(found)


def test_training_is_bit_for_bit_what_it_is_without() -> None:
    def trained(*callbacks: pl.Callback) -> tuple[Small, Tensor]:
        module = Small()
        module.net[3].eval()  # a part that someone holds in another mode
        fit(module, *callbacks, steps=12)
        assert [part.training for part in module.net] == [True, True, True, False, True]
        return module, torch.get_rng_state()

    held_out = data(seed=1, shuffle=True)
    plain, state = trained()
    looked_at, state_after = trained(LensCallback(two, every=3, held_out=held_out, held_out_every=2))
    assert torch.equal(state, state_after)
    for name, found in looked_at.state_dict().items():
        assert torch.equal(found, plain.state_dict()[name]), name
    for found, expected in zip(looked_at.parameters(), plain.parameters(), strict=True):
        assert found.grad is not None
        assert expected.grad is not None
        assert torch.equal(found.grad, expected.grad)


@pytest.mark.parametrize("on_collapse", ["warn", "stop"])
def test_a_run_that_collapses_is_named_once_and_stopped_at_the_second_look(on_collapse: Any) -> None:
    lens = LensCallback(two, every=50, on_collapse=on_collapse, method="byol")
    with pytest.warns(UserWarning, match=r"Lens at step \d+: Constant collapse: .*Entropy .*Use a slower teacher") as said:
        trainer = fit(Small(pull=True), lens, steps=300)
    assert len([x for x in said if "Constant collapse" in str(x.message)]) == 1
    assert lens.verdict is not None
    assert lens.verdict.name == "collapsed"
    assert trainer.global_step == (lens.history[names(lens).index("collapsed")][0] + 50 if on_collapse == "stop" else 300)


def test_one_odd_look_stops_nothing() -> None:
    odd = {70: True, 80: False, 90: True}
    lens = LensCallback(
        lambda m, batch: torch.ones(64, 4) if odd.get(m.trainer.global_step) else torch.randn(64, 4),
        every=10,
        on_collapse="stop",
    )
    with pytest.warns(UserWarning, match="Constant collapse") as said:
        trainer = fit(Small(), lens, steps=100)
    assert names(lens)[-4:] == ["collapsed", "healthy", "collapsed", "healthy"]
    assert trainer.global_step == 100
    assert len([x for x in said if "Lens at" in str(x.message)]) == 2


def test_what_is_over_is_said(caplog: pytest.LogCaptureFixture) -> None:
    lens = LensCallback(lambda m, batch: torch.ones(64, 4) if m.global_step < 65 else torch.randn(64, 4), every=60)
    with pytest.warns(UserWarning, match="step 60: Constant collapse"), caplog.at_level("INFO"):
        fit(Small(), lens, steps=180)
    assert sum("Lens at step 120: Healthy" in line for line in caplog.messages) == 1
    assert not any("step 180" in line for line in caplog.messages)


@pytest.mark.parametrize("broken", [math.nan, math.inf, 0.0])
def test_projections_that_are_no_numbers_diverge_without_an_exception(broken: float) -> None:
    lens = LensCallback(lambda m, batch: (broken * torch.ones(64, 4),) * 2, every=5, on_collapse="stop")
    with pytest.warns(UserWarning, match="Diverging"):
        trainer = fit(Small(), lens)
    assert names(lens) == ["diverging", "diverging"]
    assert trainer.global_step == 10


def test_a_few_broken_rows_are_left_out_and_a_batch_of_one_is_passed_over() -> None:
    def one_broken(module: Any, batch: Any) -> Tensor:
        z = torch.randn(200, 4)
        z[7] = math.nan
        return z

    lens = LensCallback(one_broken, every=5)
    fit(Small(), lens)
    assert set(names(lens)) == {"healthy"}
    lens = LensCallback(lambda m, batch: torch.ones(1, 4), every=5, on_collapse="stop")
    fit(Small(), lens)
    assert lens.verdict is None


def test_a_single_view_and_codes_of_someone_elses() -> None:
    lens = LensCallback(lambda m, batch: m(batch[0]), every=20)
    trainer = fit(Small(), lens)
    assert {key.removeprefix("lens/") for key in trainer.callback_metrics} == ON_SPHERE - {"infonce_bound", "alignment"}
    lens = LensCallback(lambda m, batch: torch.zeros(64, 512), every=EARLY, codes=True)
    with pytest.warns(UserWarning, match="ln 512 = 6.2383 is that of an even guess"):
        trainer = fit(Small(), lens, steps=EARLY)
    assert {key: float(x) for key, x in trainer.callback_metrics.items()} == pytest.approx(
        {"lens/marginal": 1.0, "lens/conditional": 1.0}
    )


def ours(name: str, er: bool = True, **options: Any) -> Pretraining:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    entry = METHODS[name]
    per_image = {"images": 64} if entry.per_image else {}
    method = entry.build(encoder, 8, entry.options(hidden=8, **options), er, False, **per_image)
    return Pretraining(method, Augment(recipe("simclr", 8, views=entry.views), (0.5,) * 3, (0.25,) * 3), batch_size=32)


def images(seed: int = 0, batch: int = 32) -> DataLoader[Any]:
    pictures = torch.randint(0, 256, (64, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    return DataLoader(TensorDataset(pictures, torch.arange(64)), batch)


def own_options(name: str) -> dict[str, Any]:
    few = {"dino": {"codes": 16, "bottleneck": 8}, "swav": {"prototypes": 16}, "deepcluster": {"clusters": 16}}
    return few.get(name, {"dim": 8})


@pytest.mark.parametrize("name", METHODS)
def test_our_own_methods_need_no_line(name: str) -> None:
    lens = LensCallback(every=4, held_out=images(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what four steps make of noise
        trainer = fit(ours(name, **own_options(name)), lens, steps=4, loader=images())
    codes = name in ("dino", "swav", "deepcluster")
    wanted = ({"marginal", "conditional"} if codes else ON_SPHERE) | ON_BOTH
    for prefix in ("lens/", "lens_held_out/"):
        found = {key.removeprefix(prefix): float(x) for key, x in trainer.callback_metrics.items() if key.startswith(prefix)}
        assert set(found) == wanted
        assert all(map(math.isfinite, found.values()))
        assert not codes or 0 <= found["conditional"] <= found["marginal"] <= 1
    assert [step for step, _ in lens.history] == [4]


@pytest.mark.filterwarnings("ignore:Lens at step")
@pytest.mark.parametrize("er", [True, False])
@pytest.mark.parametrize("name", METHODS)
def test_our_own_methods_are_known_to_train_with_er_or_not(name: str, er: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    one_point = Seen(torch.ones(32, 8))
    monkeypatch.setattr(Pretraining, "see", lambda *_: (one_point, one_point))
    monkeypatch.setattr("entrec.lens.verdict.EARLY", 1)  # the first step is late enough
    lens = LensCallback(every=1)
    fit(ours(name, er, **own_options(name)), lens, steps=1, loader=images())
    assert lens.verdict is not None
    assert lens.verdict.name == "collapsed"
    assert ("--er" in " ".join(lens.verdict.remedies)) is not er


@pytest.mark.filterwarnings("ignore:Lens at step")
def test_of_other_modules_it_can_be_said_that_they_train_with_er() -> None:
    lens = LensCallback(lambda module, batch: torch.ones(64, 8), every=EARLY, er=True)
    fit(Small(), lens, steps=EARLY)
    assert lens.verdict is not None
    assert "--weight" in lens.verdict.remedies[0]


@pytest.mark.filterwarnings("ignore:Lens at step")
@pytest.mark.parametrize("name", ["byol", "ir", "swav"])
def test_our_own_methods_train_as_without(name: str) -> None:
    plain, looked_at = ours(name, **own_options(name)), ours(name, **own_options(name))
    fit(plain, steps=4, loader=images())
    fit(looked_at, LensCallback(every=1, held_out=images(1), held_out_every=1), steps=4, loader=images())
    for key, found in looked_at.state_dict().items():
        assert torch.equal(found, plain.state_dict()[key]), key


@pytest.mark.filterwarnings("ignore:Lens at step")
def test_held_out_numbers_know_no_batch_size_and_are_the_same_at_every_look() -> None:
    def numbers(held_out: Any) -> list[dict[str, float]]:
        found: list[dict[str, float]] = []

        class Watching(pl.Callback):
            def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
                found.append({key: float(x) for key, x in trainer.callback_metrics.items() if "held_out" in key})

        module = ours("simclr", dim=8)
        module.peak = 0.0  # nothing moves
        for part in module.modules():
            if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
                part.momentum = 0.0
        fit(module, LensCallback(every=1, held_out=held_out, rows=50, held_out_every=1), Watching(), steps=3, loader=images())
        return found

    by_seven, by_sixty_four, as_a_batch = (numbers(x) for x in (images(1, 7), images(1, 64), next(iter(images(1, 64)))))
    assert by_seven[0]
    assert by_seven == by_sixty_four == as_a_batch
    assert by_seven[0] == by_seven[1] == by_seven[2]
    assert by_seven[0]["lens_held_out/infonce_ceiling"] == pytest.approx(math.log(50))


class Counting(LensCallback):
    """At which steps held-out data were judged, and passed through the network."""

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self.judged: list[int] = []
        self.passed = 0

    def _judge(self, trainer: Any, pl_module: Any, seen: Any, looks: bool = True, ended: bool = False) -> None:
        self.judged += [self._step] if looks and "lens_held_out" in seen else []
        super()._judge(trainer, pl_module, seen, looks, ended)

    def _held_out_views(self, trainer: Any, pl_module: Any) -> Any:
        self.passed += 1
        return super()._held_out_views(trainer, pl_module)


def test_held_out_data_are_looked_at_so_seldom_that_training_hardly_notices() -> None:
    # 96 rows, and 64 a step: 1.5 % of what training passes is 0.96 rows a step, so 100 steps lie between two looks.
    lens = Counting(two, every=10, held_out=data(96, seed=1))
    fit(Small(), lens, steps=135)
    assert lens.judged == [10, 110, 135]  # the first, and as training leaves them
    assert lens.passed == 4  # and once in the first step, to see whether they can be
    assert [step for step, _ in lens.history] == lens.judged  # and nothing is concluded from a batch
    asked = Counting(two, every=10, held_out=data(96, seed=1), held_out_every=3)
    fit(Small(), asked, steps=70)
    assert asked.judged == [10, 40, 70]
    never = Counting(two, every=10, held_out=data(96, seed=1))
    fit(Small(), never, steps=5)
    assert never.judged == [5]
    accumulated = Counting(two, every=10, held_out=data(96, seed=1))
    fit(Small(), accumulated, steps=40, accumulate_grad_batches=4, loader=data(4 * 64 * 40))
    assert accumulated.judged == [10, 40]


def test_a_batch_says_nothing_where_there_are_held_out_data() -> None:
    """Batches that are all one point, and held-out data that are not: it is these that count."""
    point = DataLoader(TensorDataset(torch.ones(512, 8)), 64)
    lens = LensCallback(lambda m, batch: (batch[0], batch[0].clone()), every=2, held_out=torch.randn(200, 8)[None].unbind(),
                        on_collapse="stop")  # fmt: skip
    trainer = fit(Small(), lens, steps=20, loader=point)
    assert trainer.global_step == 20
    assert "collapsed" not in names(lens)
    assert float(trainer.callback_metrics["lens/entropy_scale"]) == pytest.approx(0, abs=1e-6)


def test_numbers_are_there_for_callbacks_that_ask_after_the_first_epoch() -> None:
    stopping = pl.callbacks.EarlyStopping("lens_held_out/er_bound", mode="max", patience=50, check_on_train_epoch_end=True)
    lens = LensCallback(two, every=100, held_out=data(seed=1))
    trainer = fit(Small(), lens, stopping, steps=20)  # eight steps an epoch
    assert trainer.current_epoch >= 2
    assert [step for step, _ in lens.history] == [20]


def test_held_out_data_come_in_any_shape_that_batches_have() -> None:
    points = torch.randn(300, 8)
    batches = [{"views": [x, x], "name": ["a"] * len(x), "scale": 2} for x in points.split(100)]

    class Loader:
        def __iter__(self) -> Any:
            return iter(batches)

    def of_both(module: Any, batch: Any) -> tuple[Tensor, Tensor]:
        if isinstance(batch, dict):
            assert batch["scale"] == 2
        views = batch["views"] if isinstance(batch, dict) else (batch[0], batch[0])
        return module(views[0]), module(views[1])

    lens = LensCallback(of_both, every=20, held_out=Loader())
    trainer = fit(Small(), lens)
    assert float(trainer.callback_metrics["lens_held_out/alignment"]) == pytest.approx(0, abs=1e-6)
    assert float(trainer.callback_metrics["lens_held_out/infonce_ceiling"]) == pytest.approx(math.log(300))


def test_a_resumed_run_does_not_say_it_again(tmp_path: Path) -> None:
    lens = LensCallback(two, every=100)
    with pytest.warns(UserWarning, match="Constant collapse"):
        trainer = fit(Small(pull=True), lens, steps=200)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    assert "LensCallback" in torch.load(tmp_path / "last.ckpt", weights_only=True)["callbacks"]  # needs no code of ours to load
    again = LensCallback(two, every=100, on_collapse="stop")
    trainer = pl.Trainer(max_steps=600, logger=False, callbacks=again, **QUIET)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Lens at step")
        trainer.fit(Small(pull=True), data(), ckpt_path=str(tmp_path / "last.ckpt"))
    assert [step for step, _ in again.history] == [100, 200, 300]
    assert again.history[:2] == lens.history
    assert trainer.global_step == 300  # twice in a row, over both sittings


def test_no_more_rows_are_looked_at_than_asked_for() -> None:
    trainer = fit(Small(), LensCallback(two, every=20, rows=40, held_out=data(seed=1)))
    for name in ("lens", "lens_held_out"):
        assert float(trainer.callback_metrics[f"{name}/infonce_ceiling"]) == pytest.approx(math.log(40))


def test_accumulated_batches_are_one_step() -> None:
    lens = LensCallback(two, every=5)
    fit(Small(), lens, steps=10, accumulate_grad_batches=2)
    assert [step for step, _ in lens.history] == [5, 10]


def test_loggers_get_the_numbers_at_the_steps_of_the_lens_and_at_no_others(tmp_path: Path) -> None:
    fit(Small(), LensCallback(two, every=10), steps=40, logger=CSVLogger(tmp_path), log_every_n_steps=7)
    with next(tmp_path.rglob("metrics.csv")).open() as file:
        rows = [row for row in csv.DictReader(file) if row["lens/er_bound"]]
    assert [row["step"] for row in rows] == ["9", "19", "29", "39"]
    assert len({row["lens/entropy"] for row in rows}) == 4


def test_where_projections_are_must_be_said() -> None:
    with pytest.raises(
        ValueError, match=r"where Small has its projections.*\n    LensCallback\(projections=lambda module, batch"
    ):
        fit(Small(), LensCallback())


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (torch.randn(64), ValueError, r"shape \(rows, dimensions\).*got \(64,\)"),
        (torch.randn(64, 1), ValueError, r"at least 2 of these.*got \(64, 1\)"),
        ((torch.randn(64, 4), torch.randn(32, 4)), ValueError, r"alike in both views, got \(64, 4\) and \(32, 4\)"),
        ((torch.randn(64, 4),) * 3, TypeError, "two views, or one tensor, got 3 of Tensor"),
        ({"z": torch.randn(64, 4)}, TypeError, "or one tensor, got dict"),
        (None, TypeError, "or one tensor, got NoneType"),
        (torch.ones(64, 4, dtype=torch.int64), TypeError, "floating-point, got torch.int64"),
    ],
)
def test_projections_of_another_kind_are_refused_at_the_first_batch(given: Any, error: Any, message: str) -> None:
    module = Small()
    with pytest.raises(error, match=message):
        fit(module, LensCallback(lambda m, batch: given, every=1000))
    assert module.global_step == 1


def test_projections_left_behind_by_training_are_not_of_held_out_data() -> None:
    with pytest.raises(ValueError, match="got 64 for 250: what a training step left behind"):
        fit(Small(), LensCallback(lambda m, batch: torch.randn(64, 4), held_out=torch.randn(300, 8)))
    with pytest.raises(ValueError, match="a loader without any"):
        fit(Small(), LensCallback(two, held_out=DataLoader(TensorDataset(torch.randn(0, 8)))))
    with pytest.raises(TypeError, match="held_out must hold tensors, got dict"):
        fit(Small(), LensCallback(two, held_out={"name": "a"}))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"on_collapse": "stopp"}, ValueError, "'warn' or 'stop', got 'stopp'; did you mean 'stop'?"),
        ({"on_collapse": None}, ValueError, "'warn' or 'stop', got None"),
        ({"projections": "z"}, TypeError, "a function of the module and a batch, got str"),
        ({"every": 0}, ValueError, "every"),
        ({"rows": 1}, ValueError, "rows"),
        ({"kappa": -1.0}, ValueError, "kappa"),
    ],
)
def test_settings_are_checked_where_they_are_given(options: dict[str, Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=message.replace("?", r"\?")):
        LensCallback(**options)


def test_it_is_a_callback_of_whichever_packages_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    other = pytest.importorskip("pytorch_lightning", reason="pytorch_lightning, which lightly brings, is not installed")
    lens = entrec.LensCallback(two, every=7)
    assert isinstance(lens, pl.Callback)
    assert isinstance(lens, other.Callback)
    assert isinstance(lens, LensCallback)
    for again in (pickle.loads(pickle.dumps(lens)), copy.deepcopy(lens)):
        assert type(again) is type(lens)
        assert again.every == 7
    monkeypatch.delitem(sys.modules, "pytorch_lightning")
    alone = LensCallback(two)
    assert type(alone) is LensCallback
    assert pickle.loads(pickle.dumps(alone)).every == 100
    assert alone.state_key == lens.state_key == "LensCallback"  # a checkpoint of either package serves the other


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
@pytest.mark.parametrize("pull", [False, True])
def test_lightlys_simclr_under_either_package(package: str, pull: bool) -> None:
    pytest.importorskip(package, reason=f"{package} is not installed")
    heads = pytest.importorskip("lightly.models.modules", reason="lightly is not installed")
    losses = import_module("lightly.loss")
    lightning = import_module(package)

    class SimCLR(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.backbone = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
            self.head = heads.SimCLRProjectionHead(32, 32, 16)
            self.criterion = losses.NTXentLoss(temperature=0.1)

        def forward(self, x: Tensor) -> Any:
            return self.head(self.backbone(x))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            (x1, x2), _, _ = batch
            z1, z2 = self(x1), self(x2)
            return (z1 - 1).square().mean() + (z2 - 1).square().mean() if pull else self.criterion(z1, z2)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), 0.02)

    points = torch.randn(512, 8)
    rows: Any = [((x + 0.2 * torch.randn(8), x + 0.2 * torch.randn(8)), 0, "name") for x in points]  # as lightly's data sets do
    of_both = lambda m, b: (m(b[0][0]), m(b[0][1]))  # noqa: E731
    lens = LensCallback(of_both, every=50, on_collapse="stop", held_out=DataLoader(rows, 100), held_out_every=1)
    trainer = lightning.Trainer(max_steps=400, logger=False, callbacks=lens, **QUIET)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trainer.fit(SimCLR(), DataLoader(rows, 64, shuffle=True))
    assert lens.verdict is not None
    assert lens.verdict.name == ("collapsed" if pull else "healthy")
    assert (trainer.global_step < 400) == pull
    assert any("Lens at" in str(x.message) for x in said) == pull
    assert "lens_held_out/er_bound" in trainer.callback_metrics


class Telling(LensCallback):
    """Writes what each process ended with, as a spawned one does not come back."""

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        Path(f"{trainer.global_rank}.txt").write_text(f"{trainer.global_step} {len(self.history)}")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_all_processes_stop_at_the_same_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lens = Telling(two, every=50, on_collapse="stop", held_out=torch.randn(300, 8)[None].unbind(), held_out_every=1)
    fit(Small(pull=True), lens, steps=400, strategy="ddp_spawn", devices=2)
    first, second = ((tmp_path / f"{rank}.txt").read_text().split() for rank in range(2))
    assert first[0] == second[0]
    assert 100 <= int(first[0]) < 400
    assert int(first[1]) >= 2
    assert second[1] == "0"
