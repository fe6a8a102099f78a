"""What every method must do: learn from its views, keep what it remembers where a checkpoint finds it, show its changes."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cosine_similarity, cross_entropy, normalize

from entrec import kde_entropy, log_sphere_area
from entrec.estimators import VonMisesFisher
from entrec.methods import METHODS, Progress, Step, Views, cmc

WIDTH, IMAGES, K = 12, 40, 10
SMALL: dict[str, dict[str, Any]] = {
    "simclr": {"hidden": 16, "dim": 8},
    "cmc": {"hidden": 16, "dim": 8},
    "ir": {"hidden": 16, "dim": 8},
    "moco": {"hidden": 16, "dim": 8, "queue": 24},
    "deepcluster": {"hidden": 16, "dim": 8, "clusters": 5},
    "swav": {"hidden": 16, "dim": 8, "prototypes": 6, "small_crops": 0},
    "byol": {"hidden": 16, "dim": 8},
    "dino": {"hidden": 16, "bottleneck": 8, "codes": 14, "small_crops": 0},
}
CASES = [(name, er) for name in METHODS for er in (False, True)]
WITH_TEACHER = ["moco", "byol", "dino"]
CONSTANT: dict[str, dict[str, Any]] = {"moco": {}, "byol": {"schedule": "constant"}, "dino": {"schedule": "constant"}}
AT = Progress(3, 10)


def build(name: str, er: bool = False, seed: int = 0, **options: Any) -> Any:
    torch.manual_seed(seed)
    entry = METHODS[name]
    chosen = entry.options(**{**SMALL[name], **options})
    further: dict[str, Any] = {"images": IMAGES} if entry.per_image else {}
    if not getattr(chosen, "shared", True):
        further["others"] = [encoder() for _ in range(chosen.views - 1)]
    return entry.build(encoder(), WIDTH, chosen, er, False, **further)


def encoder() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, WIDTH, 3, padding=1), nn.BatchNorm2d(WIDTH), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )


def views_of(seed: int, number: int = 2, small: int = 0, k: int = K) -> Views:
    g = torch.Generator().manual_seed(seed)
    images = torch.rand(k, 3, 8, 8, generator=g)
    noisy = tuple(images + 0.1 * torch.rand(k, 3, 8, 8, generator=g) for _ in range(number))
    crops = tuple(images[:, :, :5, :5] + 0.1 * torch.rand(k, 3, 5, 5, generator=g) for _ in range(small))
    return Views(noisy + crops, torch.randperm(IMAGES, generator=g)[:k], number)


def number_of(name: str) -> int:
    return METHODS[name].views


def one_step(method: Any, views: Views, optimizer: torch.optim.Optimizer | None = None) -> Step:
    method.zero_grad(set_to_none=True)
    if hasattr(method, "prepare"):
        method.prepare(AT)
    step: Step = method(views)
    step.loss.backward()
    if hasattr(method, "before_step"):
        method.before_step()
    if optimizer is not None:
        optimizer.step()
    if hasattr(method, "update"):
        method.update(step)
    return step


@pytest.mark.parametrize(("name", "er"), CASES)
def test_the_loss_is_a_number_whose_gradient_reaches_every_weight(name: str, er: bool) -> None:
    method = build(name, er)
    step = one_step(method, views_of(1, number_of(name)))
    assert step.loss.shape == ()
    assert torch.isfinite(step.loss)
    without = [key for key, p in method.named_parameters() if p.requires_grad and (p.grad is None or not p.grad.any())]
    # BatchNorm follows them, so a bias before it moves nothing
    assert without in ([], ["encoder.0.bias"]), without
    assert step.features.shape == (K, WIDTH)
    assert not step.features.requires_grad


@pytest.mark.parametrize(("name", "er"), CASES)
def test_a_checkpoint_holds_all_that_the_next_step_reads(name: str, er: bool) -> None:
    method = build(name, er)
    optimizer = torch.optim.SGD(method.parameters(), 0.1)
    for seed in range(3):
        one_step(method, views_of(seed, number_of(name)), optimizer)
    other = build(name, er, seed=1)
    other.load_state_dict(copy.deepcopy(method.state_dict()))
    torch.manual_seed(5)
    first = one_step(method, views_of(9, number_of(name)), optimizer)
    torch.manual_seed(5)
    second = one_step(other, views_of(9, number_of(name)))
    assert torch.equal(first.loss, second.loss)


@pytest.mark.parametrize(
    ("norm", "predictor_norm", "there"),
    [(True, None, (1, 1)), (False, None, (0, 0)), (True, False, (1, 0)), (False, True, (0, 1))],
)
def test_byols_heads_have_the_norms_that_are_asked_for(norm: bool, predictor_norm: bool | None, there: tuple[int, int]) -> None:
    method = build("byol", norm=norm, predictor_norm=predictor_norm)
    heads = (method.projector, method.predictor)
    assert tuple(sum(isinstance(x, nn.BatchNorm1d) for x in head.modules()) for head in heads) == there


@pytest.mark.parametrize(("name", "er"), CASES)
def test_forward_changes_no_memory_but_batch_norms(name: str, er: bool) -> None:
    method = build(name, er)
    before = {key: value.clone() for key, value in method.state_dict().items()}
    method(views_of(1, number_of(name)))
    moved = [key for key, value in method.state_dict().items() if not torch.equal(value, before[key])]
    assert all(key.rsplit(".", 1)[-1] in ("running_mean", "running_var", "num_batches_tracked") for key in moved), moved


@pytest.mark.parametrize(("name", "er"), CASES)
def test_the_terms_are_measured_in_nats_whatever_the_loss(name: str, er: bool) -> None:
    method = build(name, er)
    step = method(views_of(1, number_of(name)))
    with torch.no_grad():
        terms = method.measure(step)
    width = step.student[0].shape[-1]
    ceiling = math.log(width) if name in ("deepcluster", "swav", "dino") else log_sphere_area(width) + 5
    assert terms.entropy.item() <= ceiling + 1e-5
    assert not terms.entropy.requires_grad
    if er and name in ("deepcluster", "swav", "dino"):
        torch.testing.assert_close(step.loss.detach(), -(terms.entropy + terms.reconstruction))


@pytest.mark.parametrize("name", ["deepcluster", "swav", "dino"])
def test_the_entropy_of_codes_has_a_gradient_of_its_own(name: str) -> None:
    """With weight 0 the loss is minus the entropy: were it that of the targets, nothing would move."""
    method = build(name, er=True, weight=0.0)
    step = method(views_of(1))
    step.loss.backward()
    assert method.encoder[0].weight.grad.abs().max() > 1e-7


@pytest.mark.parametrize("name", ["simclr", "cmc", "ir", "moco", "byol"])
def test_the_entropy_of_projections_has_a_gradient_of_its_own(name: str) -> None:
    method = build(name, er=True, weight=0.0)
    step = method(views_of(1, number_of(name)))
    step.loss.backward()
    assert method.encoder[0].weight.grad.abs().max() > 1e-7


@pytest.mark.parametrize("name", WITH_TEACHER)
def test_no_gradient_reaches_the_teacher_and_it_follows_by_its_coefficient(name: str) -> None:
    method = build(name, ema=0.7, **CONSTANT[name])
    optimizer = torch.optim.SGD(method.parameters(), 0.5)
    before = {key: p.clone() for key, p in method.teacher.named_parameters()}
    one_step(method, views_of(1), optimizer)
    assert all(p.grad is None and not p.requires_grad for p in method.teacher.parameters())
    head = method.head if name == "dino" else method.projector
    student = dict(nn.Sequential(method.encoder, head).named_parameters())
    for key, p in method.teacher.named_parameters():
        torch.testing.assert_close(p, 0.7 * before[key] + 0.3 * student[key.removeprefix("module.")])


@pytest.mark.parametrize("name", WITH_TEACHER)
@pytest.mark.parametrize("er", [False, True])
def test_an_ema_of_none_is_the_student_itself_and_of_zero_its_last_step(name: str, er: bool) -> None:
    assert build(name, er, ema=None).teacher is None
    method = build(name, er, ema=0.0, **CONSTANT[name])
    one_step(method, views_of(1), torch.optim.SGD(method.parameters(), 0.5))
    head = method.head if name == "dino" else method.projector
    for p, q in zip(method.teacher.parameters(), nn.Sequential(method.encoder, head).parameters(), strict=True):
        assert torch.equal(p, q)


@pytest.mark.parametrize("name", ["byol", "dino"])
def test_a_cosine_schedule_ends_with_a_teacher_that_stands_still(name: str) -> None:
    method = build(name, ema=0.5, schedule="cosine")
    step = method(views_of(1))
    with torch.no_grad():
        for p in method.encoder.parameters():
            p.add_(1.0)
    before = [p.clone() for p in method.teacher.parameters()]
    method.prepare(Progress(10, 10))
    method.update(step)
    assert all(torch.equal(p, q) for p, q in zip(method.teacher.parameters(), before, strict=True))


@pytest.mark.parametrize("name", ["byol", "cmc", "simclr", "swav", "dino", "deepcluster"])
def test_more_views_are_more_pairs(name: str) -> None:
    # NT-Xent is a loss of two views; ER is one of any number.
    step = build(name, er=name == "simclr", views=4)(views_of(1, 4))
    assert len(step.student) == 4
    assert torch.isfinite(step.loss)


@pytest.mark.parametrize("name", ["byol", "swav", "dino"])
@pytest.mark.parametrize("er", [False, True])
def test_small_crops_are_seen_by_the_student_alone(name: str, er: bool) -> None:
    step = build(name, er)(views_of(1, 2, small=3))
    assert (len(step.student), len(step.targets)) == (5, 2)


def test_simclr_is_its_papers_formula() -> None:
    method = build("simclr", temperature=0.3)
    step = method(views_of(1))
    z = normalize(torch.cat(step.student).detach(), dim=-1)
    total = 0.0
    for i in range(2 * K):
        others = [math.exp(float(z[i] @ z[j]) / 0.3) for j in range(2 * K) if j != i]
        total -= math.log(math.exp(float(z[i] @ z[(i + K) % (2 * K)]) / 0.3) / sum(others))
    assert step.loss.item() == pytest.approx(total / (2 * K), rel=1e-5)


def test_byol_is_its_papers_formula_in_both_directions() -> None:
    step = build("byol")(views_of(1))
    (p1, p2), (t1, t2) = step.sources, step.targets
    expected = (2 - 2 * cosine_similarity(p1, t2)).mean() / 2 + (2 - 2 * cosine_similarity(p2, t1)).mean() / 2
    torch.testing.assert_close(step.loss, expected)
    assert not t1.requires_grad


def test_byols_entropy_is_the_students_before_its_predictor() -> None:
    method = build("byol", er=True, estimator="joe", kappa=5.0)
    step = method(views_of(1))
    density = VonMisesFisher(5.0)
    entropy = (kde_entropy(step.student[0], density) + kde_entropy(step.student[1], density)) / 2
    pairs = [(step.sources[0], step.targets[1]), (step.sources[1], step.targets[0])]
    rec = sum(density.log_prob(t, p).mean() for p, t in pairs) / 2
    torch.testing.assert_close(step.loss, -(entropy + rec))


def test_mocos_loss_is_cross_entropy_of_the_key_among_the_queue() -> None:
    method = build("moco", temperature=0.2)
    step = method(views_of(1))
    q, k = normalize(step.student[0], dim=-1), normalize(step.targets[0], dim=-1)
    logits = torch.cat([(q * k).sum(-1, keepdim=True), q @ method.queue.rows.T], dim=1) / 0.2
    torch.testing.assert_close(step.loss, cross_entropy(logits, torch.zeros(K, dtype=torch.int64)))


def test_keys_join_mocos_queue_after_their_own_loss() -> None:
    method = build("moco")
    before = method.queue.rows.clone()
    step = method(views_of(1))
    assert torch.equal(method.queue.rows, before)
    method.update(step)
    changed = (method.queue.rows != before).any(dim=-1)
    assert changed.sum() == K
    torch.testing.assert_close(method.queue.rows[changed], normalize(step.targets[0], dim=-1))


def test_ir_tells_each_image_from_all_others_in_the_bank_and_moves_its_entry() -> None:
    method = build("ir", temperature=0.1, momentum=0.25)
    views = views_of(1, 1)
    step = method(views)
    z = normalize(step.student[0], dim=-1)
    torch.testing.assert_close(step.loss, cross_entropy(z @ method.bank.entries.T / 0.1, views.places))
    old = method.bank.entries.clone()
    method.update(step)
    expected = old.clone()
    expected[views.places] = normalize(0.25 * old[views.places] + 0.75 * z.detach(), dim=-1)
    torch.testing.assert_close(method.bank.entries, expected)


def test_irs_er_reconstructs_the_banks_entry() -> None:
    method = build("ir", er=True, estimator="joe", kappa=5.0)
    views = views_of(1, 1)
    step = method(views)
    density = VonMisesFisher(5.0)
    rec = density.log_prob(method.bank.entries[views.places], step.student[0]).mean()
    torch.testing.assert_close(step.loss, -(kde_entropy(step.student[0], density) + rec))


def test_ir_draws_negatives_where_the_bank_is_larger() -> None:
    method = build("ir", negatives=7)
    torch.manual_seed(0)
    step = method(views_of(1, 1))
    assert torch.isfinite(step.loss)
    assert step.loss < math.log(8) + 2 / 0.07


def test_dinos_targets_are_centred_and_sharpened() -> None:
    method = build("dino", teacher_temperature=0.05)
    method.centre.value.copy_(torch.randn(14))
    step = method(views_of(1))
    logits = step.kept[0].chunk(2)
    for target, logit in zip(step.targets, logits, strict=True):
        torch.testing.assert_close(target, torch.softmax((logit - method.centre.value) / 0.05, dim=-1))
    s = [torch.log_softmax(x / 0.1, dim=-1) for x in step.student]
    expected = -((step.targets[0] * s[1]).sum(-1).mean() + (step.targets[1] * s[0]).sum(-1).mean()) / 2
    torch.testing.assert_close(step.loss, expected)


def test_dino_without_centring_neither_uses_nor_moves_its_centre() -> None:
    method = build("dino", centring=False)
    plain = method(views_of(1))
    method.centre.value.fill_(3.0).mul_(torch.arange(14.0))
    moved = method.centre.value.clone()
    assert torch.equal(method(views_of(1)).targets[0], plain.targets[0])
    method.update(plain)
    assert torch.equal(method.centre.value, moved)


@pytest.mark.parametrize("estimator", ["joe", "plugin"])
def test_dinos_continuous_er_is_on_its_bottleneck(estimator: str) -> None:
    step = build("dino", er=True, estimator=estimator)(views_of(1))
    assert step.student[0].shape == (K, 8)
    torch.testing.assert_close(step.student[0].norm(dim=-1), torch.ones(K))


def test_swavs_codes_are_balanced_and_its_loss_is_their_cross_entropy() -> None:
    method = build("swav", iterations=300)
    step = method(views_of(1))
    torch.testing.assert_close(step.targets[0].sum(dim=0), torch.full((6,), K / 6), rtol=1e-3, atol=1e-3)
    s = [torch.log_softmax(x / 0.1, dim=-1) for x in step.student]
    expected = -((step.targets[0] * s[1]).sum(-1).mean() + (step.targets[1] * s[0]).sum(-1).mean()) / 2
    torch.testing.assert_close(step.loss, expected)


def test_swavs_prototypes_stay_on_the_sphere_and_still_at_the_beginning() -> None:
    method = build("swav", frozen=0.5)
    optimizer = torch.optim.SGD(method.parameters(), 0.5)
    before = [p.clone() for p in method.prototypes.parameters()]
    one_step(method, views_of(1), optimizer)  # at 3 of 10
    assert all(torch.equal(p, q) for p, q in zip(method.prototypes.parameters(), before, strict=True))
    moving = build("swav", frozen=0.1)
    one_step(moving, views_of(1), torch.optim.SGD(moving.parameters(), 0.5))
    (weight,) = moving.prototypes.parameters()
    torch.testing.assert_close(weight.norm(dim=-1), torch.ones(6))


def test_swavs_queue_shares_the_balance() -> None:
    method = build("swav", queue=20)
    before = method.queue.rows.clone()
    step = one_step(method, views_of(1))
    assert step.targets[0].shape == (K, 6)
    assert (method.queue.rows != before).any(dim=-1).sum() == K


@pytest.mark.parametrize("assignment", ["kmeans", "transport"])
def test_deepcluster_draws_uniformly_over_the_clusters_it_found(assignment: str) -> None:
    method = build("deepcluster", assignment=assignment)
    g = torch.Generator().manual_seed(0)
    centres = normalize(torch.randn(5, 8, generator=g), dim=-1)
    truth = torch.arange(IMAGES) % 5
    points = centres[truth] + 0.05 * torch.randn(IMAGES, 8, generator=g)
    method.begin_epoch(lambda module: (points, torch.arange(IMAGES)), torch.Generator().manual_seed(1))
    for cluster in range(5):
        members = method.labels == cluster
        if members.any():
            assert method.weights[members].sum().item() == pytest.approx(1.0, rel=1e-5)
    together = (method.labels[:, None] == method.labels[None, :]) == (truth[:, None] == truth[None, :])
    assert together.float().mean() > 0.95


def test_deepcluster_does_not_draw_images_that_cannot_be_read() -> None:
    method = build("deepcluster")
    places = torch.arange(IMAGES)[torch.arange(IMAGES) % 4 > 0]
    points = torch.randn(len(places), 8, generator=torch.Generator().manual_seed(0))
    method.begin_epoch(lambda module: (points, places), torch.Generator().manual_seed(1))
    assert torch.equal(method.weights > 0, torch.arange(IMAGES) % 4 > 0)
    found = method.predictor(points).argmax(dim=-1)
    assert torch.equal(method.labels[places], found)


def test_deepclusters_predictor_begins_at_the_centres() -> None:
    method = build("deepcluster")
    points = normalize(torch.randn(IMAGES, 8, generator=torch.Generator().manual_seed(0)), dim=-1)
    method.begin_epoch(lambda module: (points, torch.arange(IMAGES)), torch.Generator().manual_seed(1))
    assert torch.equal(method.predictor(points).argmax(dim=-1), method.labels)


def test_cmc_has_one_encoder_for_all_views_or_one_each() -> None:
    shared, apart = build("cmc"), build("cmc", shared=False, views=3)
    assert len(shared.other_encoders) == 0
    assert len(apart.other_encoders) == 2
    with pytest.raises(ValueError, match="others must be 2 encoders"):
        METHODS["cmc"].build(encoder(), WIDTH, cmc.Options(shared=False, views=3), False, False, others=[encoder()])
    assert not torch.equal(apart.encoder[0].weight, apart.other_encoders[0][0].weight)
    step = apart(views_of(1, 3))
    step.loss.backward()
    assert all(module[0].weight.grad.abs().max() > 0 for module in (apart.encoder, *apart.other_encoders))


def test_a_collapsed_student_has_the_least_entropy_there_is() -> None:
    method = build("byol")
    z = torch.ones(K, 8)
    entropy = method.measure(Step(z[0, 0], z, (z, z), (z, z), (z, z))).entropy
    floor = -VonMisesFisher(10.0).log_prob(z[:1], z[:1])[0]
    torch.testing.assert_close(entropy, floor)


def test_a_symmetric_moco_is_the_mean_of_both_ways() -> None:
    method, views = build("moco", symmetric=True), views_of(0)
    rows = method.queue.rows.clone()
    swapped = views._replace(images=views.images[::-1])
    one_way = build("moco")
    both = [one_way(way).loss for way in (views, swapped)]
    step = method(views)
    assert step.loss.item() == pytest.approx(sum(both).item() / 2, rel=1e-5)
    method.update(step)
    assert torch.equal(method.queue.rows[: 2 * K], normalize(torch.cat(step.targets), dim=-1))
    assert torch.equal(method.queue.rows[2 * K :], rows[2 * K :])


def test_a_symmetric_moco_with_er_takes_both_ways_too() -> None:
    views = views_of(0)
    swapped = views._replace(images=views.images[::-1])
    one_way, both = build("moco", er=True), build("moco", er=True, symmetric=True)
    wanted = sum(one_way(way).loss for way in (views, swapped)).item() / 2
    assert both(views).loss.item() == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("name", ["simclr", "swav", "dino"])
def test_a_view_can_have_statistics_of_its_own(name: str) -> None:
    views = views_of(0)
    brighter = views._replace(images=(views.images[0], 3 * views.images[1] + 1))
    for shared in (True, False):
        one, other = (build(name, shared_statistics=shared)(x).student[0] for x in (views, brighter))
        assert torch.allclose(one, other, atol=1e-5) is not shared


def test_byols_scale_is_of_its_own_loss_alone() -> None:
    views = views_of(0)
    assert build("byol", scale=0.5)(views).loss.item() == pytest.approx(build("byol")(views).loss.item() / 2)
    assert build("byol", er=True, scale=0.5)(views).loss.item() == build("byol", er=True)(views).loss.item()
