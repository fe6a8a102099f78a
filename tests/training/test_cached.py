import copy
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from entrec import VonMisesFisher
from entrec.losses import ERLoss
from entrec.training import cached_backward
from tests.ranks import on_ranks

Loss = Callable[..., Tensor]
ROWS = 16


def nt_xent(z1: Tensor, z2: Tensor, temperature: float = 0.2) -> Tensor:
    """SimCLR's loss as its paper writes it: every other row of both views is a negative, every row but itself a candidate."""
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    similarity = (z @ z.T / temperature).masked_fill(torch.eye(len(z), dtype=torch.bool, device=z.device), -torch.inf)
    partner = torch.arange(len(z), device=z.device).roll(len(z1))
    return F.cross_entropy(similarity, partner)


LOSSES: dict[str, Loss] = {
    "er, plug-in": ERLoss(VonMisesFisher(5.0)),
    "er, joe": ERLoss(VonMisesFisher(5.0), VonMisesFisher(8.0), "joe", leave_one_out=True),
    "nt-xent": nt_xent,
}


def frozen(module: nn.Module) -> nn.Module:
    """Every BatchNorm in eval mode, with running statistics that are not the ones it starts from."""
    for x in module.modules():
        if isinstance(x, nn.BatchNorm1d | nn.BatchNorm2d):
            x.running_mean, x.running_var = torch.randn(x.num_features), torch.rand(x.num_features) + 0.5
            x.eval()
    return module


ENCODERS: dict[str, Callable[[], nn.Module]] = {
    "layer norm": lambda: nn.Sequential(nn.Flatten(), nn.Linear(48, 12), nn.LayerNorm(12), nn.GELU(), nn.Linear(12, 5)),
    "group norm": lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten(), nn.Linear(32, 5)),
    "instance norm": lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8), nn.GELU(), nn.Flatten(), nn.Linear(32, 5)),
    "frozen batch norm": lambda: frozen(
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(32, 5))
    ),
}


def mlp(*layers: nn.Module) -> nn.Sequential:
    """An encoder of vectors of size 6, with what the test is about in its middle."""
    return nn.Sequential(nn.Linear(6, 12), *layers, nn.GELU(), nn.Linear(12, 5)).double()


def vectors(views: int = 2, rows: int = ROWS) -> tuple[Tensor, ...]:
    return tuple(torch.randn(views, rows, 6, dtype=torch.float64))


def gradients(*modules: Any) -> list[Tensor]:
    """The gradients of all parameters, which are then cleared."""
    parameters = [p for module in modules if isinstance(module, nn.Module) for p in module.parameters()]
    assert all(p.grad is not None for p in parameters if p.requires_grad)
    found = [p.grad for p in parameters if p.grad is not None]
    for p in parameters:
        p.grad = None
    return found


def close(measured: list[Tensor], exact: list[Tensor], tolerance: float = 1e-12) -> None:
    """Every gradient is right to a relative error; those that vanish (a bias before a norm) to a tenth of all the others'."""
    everything = torch.cat([b.flatten() for b in exact]).norm()
    assert everything > 1e-3
    for a, b in zip(measured, exact, strict=True):
        assert (a - b).norm() <= tolerance * max(b.norm(), everything / 10)


def one_shot(encoder: nn.Module, views: tuple[Tensor, ...], loss: Loss, chunk_size: int = ROWS) -> Tensor:
    """The loss with the whole graph; the encoder may be run on chunks, to draw what it draws there."""
    value = loss(*(torch.cat([encoder(chunk) for chunk in view.split(chunk_size)]) for view in views))
    value.backward()
    return value.detach()


@pytest.mark.parametrize("chunk_size", [1, 7, ROWS])
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("norm", ENCODERS)
def test_gradient_and_value_are_the_whole_batchs(norm: str, name: str, chunk_size: int) -> None:
    encoder, loss = ENCODERS[norm](), LOSSES[name]
    views = tuple(torch.randn(2, ROWS, 3, 4, 4, dtype=torch.float64))
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        encoder, views = encoder.to(dtype), tuple(view.to(dtype) for view in views)
        exact = one_shot(encoder, views, loss)
        expected = gradients(encoder)
        value = cached_backward(encoder, views, loss, chunk_size)
        close(gradients(encoder), expected, tolerance)
        assert not value.requires_grad
        assert value.item() == pytest.approx(exact.item(), rel=tolerance)


def test_gradient_is_added_to_what_is_there() -> None:
    encoder, views = mlp(), vectors()
    one_shot(encoder, views, nt_xent)
    cached_backward(encoder, views, nt_xent, 7)
    twice = gradients(encoder)
    one_shot(encoder, views, nt_xent)
    close(twice, [2 * g for g in gradients(encoder)])


@pytest.mark.parametrize("count", [1, 3])
def test_any_number_of_views_goes_to_the_loss_once(count: int) -> None:
    encoder, views = mlp(), vectors(count)
    calls = []

    def loss(*z: Tensor) -> Tensor:
        calls.append([tuple(x.shape) for x in z])
        return torch.cat(z, dim=1).T.cov().square().sum()

    cached_backward(encoder, views, loss, 7)
    assert calls == [[(ROWS, 5)] * count]
    measured = gradients(encoder)
    one_shot(encoder, views, loss)
    close(measured, gradients(encoder))


def test_an_encoder_sees_chunks_of_the_size_asked_for_and_the_rest() -> None:
    encoder, views = mlp(), vectors()
    seen: list[int] = []
    encoder.register_forward_hook(lambda module, inputs, output: seen.append(len(output)))
    cached_backward(encoder, views, nt_xent, 7)
    assert seen == [7, 7, 2] * 4


def test_a_learnt_kappa_gets_its_gradient() -> None:
    kappa = nn.Parameter(torch.tensor(5.0, dtype=torch.float64))
    loss = ERLoss(VonMisesFisher(kappa), estimator="joe")
    encoder, views = mlp(), vectors()
    one_shot(encoder, views, loss)
    expected = gradients(encoder, loss)
    cached_backward(encoder, views, loss, 7)
    close(gradients(encoder, loss), expected)
    cached_backward(encoder.requires_grad_(False), views, loss, 7)
    close(gradients(encoder, loss), expected[-1:])


def test_a_loss_may_use_parameters_of_the_encoder() -> None:
    encoder, views = mlp(), vectors()
    prototypes = list(encoder.parameters())[2]

    def codes_by_tied_prototypes(z1: Tensor, z2: Tensor) -> Tensor:
        return -((z1 @ prototypes).softmax(1).mean(0) * (z2 @ prototypes).log_softmax(1).mean(0)).sum()

    one_shot(encoder, views, codes_by_tied_prototypes)
    expected = gradients(encoder)
    cached_backward(encoder, views, codes_by_tied_prototypes, 7)
    close(gradients(encoder), expected)


# What is drawn, and what is kept.


@pytest.mark.parametrize("chunk_size", [1, 7, ROWS])
def test_dropout_has_the_same_masks_in_both_passes_and_draws_them_once(chunk_size: int) -> None:
    encoder, views = mlp(nn.Dropout(0.4)), vectors()
    torch.manual_seed(1)
    exact = one_shot(encoder, views, nt_xent, chunk_size)
    expected, following = gradients(encoder), torch.rand(3)
    torch.manual_seed(1)
    value = cached_backward(encoder, views, nt_xent, chunk_size)
    assert torch.equal(torch.rand(3), following)
    assert value.item() == pytest.approx(exact.item(), rel=1e-12)
    close(gradients(encoder), expected)


def test_what_the_loss_draws_stays_drawn() -> None:
    encoder, views = mlp(nn.Dropout(0.4)), vectors()

    def noisy(z1: Tensor, z2: Tensor) -> Tensor:
        return nt_xent(z1 + torch.randn_like(z1), z2)

    torch.manual_seed(1)
    one_shot(encoder, views, noisy, 7)
    expected, following = gradients(encoder), torch.rand(3)
    torch.manual_seed(1)
    cached_backward(encoder, views, noisy, 7)
    assert torch.equal(torch.rand(3), following)
    close(gradients(encoder), expected)


class OwnDropout(nn.Module):
    def __init__(self, draw: Callable[[], float]) -> None:
        super().__init__()
        self.draw = draw

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.tensor([float(self.draw() < 0.6) for _ in range(x.shape[1])])


@pytest.mark.parametrize("source", ["random", "torch.Generator"])
def test_random_numbers_that_cannot_be_replayed_are_found_out(source: str) -> None:
    generator, other = torch.Generator().manual_seed(0), random.Random(0)
    draw = other.random if source == "random" else lambda: torch.rand((), generator=generator).item()
    with pytest.raises(RuntimeError, match=r"same outputs for the same chunk twice.*NumPy"):
        cached_backward(mlp(OwnDropout(draw)), vectors(), nt_xent, 7)


@pytest.mark.parametrize("chunk_size", [8, ROWS])
def test_chunk_statistics_are_exact_for_the_chunked_objective_and_are_counted_once(chunk_size: int) -> None:
    encoder, views = mlp(norm := nn.BatchNorm1d(12)), vectors()
    other = copy.deepcopy(encoder)
    exact = one_shot(other, views, nt_xent, chunk_size)
    value = cached_backward(encoder, views, nt_xent, chunk_size, chunk_statistics=chunk_size < ROWS)  # else nothing to ask for
    assert value.item() == pytest.approx(exact.item(), rel=1e-12)
    close(gradients(encoder), gradients(other))
    assert norm.num_batches_tracked is not None
    assert norm.num_batches_tracked.item() == 2 * ROWS // chunk_size
    for a, b in zip(encoder.buffers(), other.buffers(), strict=True):
        assert torch.equal(a, b)


def test_a_buffer_that_is_assigned_anew_is_put_back_too() -> None:
    class Counter(nn.Module):
        calls: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.calls = self.calls + 1
            return x

    counter = Counter()
    cached_backward(mlp(counter), vectors(), nt_xent, 7)
    assert counter.calls.item() == 6


def test_buffers_that_do_not_change_are_left_alone_for_graphs_that_hold_them() -> None:
    encoder, views = frozen(mlp(nn.BatchNorm1d(12))).double(), vectors()
    encoder.register_buffer("expanded", torch.ones(1).expand(3))  # nothing can be written to this one
    encoder.register_buffer("sparse", torch.eye(3).to_sparse())
    held = encoder(views[0]).sum()
    cached_backward(encoder, views, nt_xent, 7)
    held.backward()  # an error, had a buffer been written to


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        (nn.BatchNorm1d(12), r"1 \(BatchNorm1d\)"),
        (nn.SyncBatchNorm(12), r"1 \(SyncBatchNorm\)"),
        (nn.BatchNorm1d(12, track_running_stats=False).eval(), r"1 \(BatchNorm1d\)"),
        (nn.Sequential(*(nn.BatchNorm1d(12) for _ in range(5))), r"1\.0 .*1\.1 .*1\.2 \(BatchNorm1d\) and 2 more"),
    ],
)
def test_batch_norm_is_refused_by_name_before_anything_has_changed(layer: nn.Module, name: str) -> None:
    encoder, views = mlp(layer), vectors()
    state = copy.deepcopy(encoder.state_dict())
    with pytest.raises(ValueError, match=rf"{name} would use.*GroupNorm.*\.eval\(\).*chunk_statistics=True"):
        cached_backward(encoder, views, nt_xent, 7)
    assert all(p.grad is None for p in encoder.parameters())
    assert all(torch.equal(a, b) for a, b in zip(encoder.state_dict().values(), state.values(), strict=True))


# What is alive.


@contextmanager
def counted(alive: dict[str, int]) -> Iterator[None]:
    """Counts the numbers that graphs hold for their backward passes: those alive now, and the most ever."""

    class Held:
        def __init__(self, x: Tensor) -> None:
            self.x = x
            alive["now"] += x.numel()
            alive["most"] = max(alive["most"], alive["now"])

        def __del__(self) -> None:
            alive["now"] -= self.x.numel()

    with torch.autograd.graph.saved_tensors_hooks(Held, lambda held: held.x):
        yield


class Counted(nn.Module):
    """The encoder, with its activations counted; not those of the loss."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.alive = {"now": 0, "most": 0}

    def forward(self, x: Tensor) -> Tensor:
        with counted(self.alive):
            z: Tensor = self.encoder(x)
            return z


def test_never_more_than_one_chunks_activations_are_alive() -> None:
    views = vectors()
    once, whole, chunked = (Counted(mlp(nn.LayerNorm(12))) for _ in range(3))
    once(views[0][:4]).sum().backward()
    one_shot(whole, views, nt_xent)
    cached_backward(chunked, views, nt_xent, 4)
    assert chunked.alive["most"] == once.alive["most"]
    assert whole.alive["most"] > 4 * once.alive["most"]  # less than eight times: weights are held as well
    assert chunked.alive["now"] == whole.alive["now"] == 0


# Other precisions.


class Dtypes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[torch.dtype] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x.dtype)
        return x


def nt_xent_in_float32(z1: Tensor, z2: Tensor) -> Tensor:
    with torch.autocast(z1.device.type, enabled=False):
        return nt_xent(z1.float(), z2.float())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_holds_in_both_passes_and_not_in_the_backward(dtype: torch.dtype) -> None:
    encoder = mlp(dtypes := Dtypes(), nn.LayerNorm(12)).float()
    views = tuple(view.float() for view in vectors())
    # Without its cache autocast adds up the chunks' gradients in float32, as the cached step does.
    with torch.autocast("cpu", dtype, cache_enabled=False):
        outputs = [torch.cat([encoder(chunk) for chunk in view.split(7)]) for view in views]
        exact = nt_xent_in_float32(*outputs)
    exact.backward()
    expected = gradients(encoder)
    dtypes.seen.clear()
    with torch.autocast("cpu", dtype):
        value = cached_backward(encoder, views, nt_xent_in_float32, 7)
        assert torch.is_autocast_enabled("cpu")
    assert dtypes.seen == [dtype] * 12
    assert value.item() == pytest.approx(exact.item(), rel=1e-6)
    close(gradients(encoder), expected, 1e-5)


def test_scaler_scales_the_gradient_and_not_the_value() -> None:
    encoder, views = mlp(), vectors()
    exact = one_shot(encoder, views, nt_xent)
    expected = gradients(encoder)
    value = cached_backward(encoder, views, nt_xent, 7, scaler=torch.amp.GradScaler("cpu", init_scale=1024.0))
    assert value.item() == pytest.approx(exact.item(), rel=1e-12)
    close(gradients(encoder), [1024 * g for g in expected])


# Other forms of encoder, view and output.


class Heads(NamedTuple):
    projection: Tensor
    prediction: Tensor
    target: Tensor
    rows: Tensor


class StudentAndTeacher(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.student, self.predictor, self.teacher = mlp(), nn.Linear(5, 5).double(), mlp()
        self.teacher.requires_grad_(False)

    def forward(self, x: Tensor) -> Heads:
        z = self.student(x)
        return Heads(z, self.predictor(z), self.teacher(x), torch.arange(len(x)))


def byol(out1: Heads, out2: Heads) -> Tensor:
    projections, predictions, targets, _ = zip(out1, out2, strict=True)
    return ERLoss(VonMisesFisher(5.0)).terms(*projections, targets=targets, predictions=predictions).loss


def test_an_encoder_may_return_several_tensors_some_without_gradient() -> None:
    encoder, views = StudentAndTeacher(), vectors()
    byol(*(encoder(view) for view in views)).backward()
    expected = gradients(encoder)
    cached_backward(encoder, views, byol, 7)
    close(gradients(encoder), expected)


def test_each_view_may_have_its_encoder_and_a_frozen_one_runs_once() -> None:
    student, teacher, views = mlp(), mlp().requires_grad_(False), vectors()
    calls = []
    teacher.register_forward_hook(lambda *_: calls.append("teacher"))

    def distilled(z1: Tensor, z2: Tensor, t1: Tensor, t2: Tensor) -> Tensor:
        return ERLoss(VonMisesFisher(5.0)).terms(z1, z2, targets=(t1, t2)).loss

    branches = (student, student, teacher, teacher)
    distilled(*(f(view) for f, view in zip(branches, views * 2, strict=True))).backward()
    expected = gradients(student)
    calls.clear()
    cached_backward(branches, views * 2, distilled, 8)
    close(gradients(student), expected)
    assert len(calls) == 4


class TextEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 5).double()

    def forward(self, text: dict[str, Any]) -> Tensor:
        (mask,) = text["masks"]
        return torch.einsum("nt,ntd->nd", mask, self.embedding(text["tokens"]))


@pytest.mark.parametrize("form", [list, nn.ModuleList])
def test_two_modalities_of_different_form_have_an_encoder_each(form: Callable[[list[nn.Module]], Any]) -> None:
    image, text = mlp(), TextEncoder()
    pixels = vectors(1)[0]
    sentence = {"tokens": torch.randint(10, (ROWS, 4)), "masks": (torch.rand(ROWS, 4, dtype=torch.float64),)}
    nt_xent(image(pixels), text(sentence)).backward()
    expected = gradients(image, text)
    cached_backward(form([image, text]), (pixels, sentence), nt_xent, 7)
    close(gradients(image, text), expected)


def test_a_view_whose_output_gets_no_gradient_is_encoded_once() -> None:
    encoder, views = mlp(), vectors()
    calls = []
    encoder.register_forward_hook(lambda *_: calls.append("encoder"))

    def asymmetric(z1: Tensor, z2: Tensor) -> Tensor:
        return nt_xent(z1, z2.detach())

    one_shot(encoder, views, asymmetric)
    expected = gradients(encoder)
    calls.clear()
    cached_backward(encoder, views, asymmetric, 8)
    assert len(calls) == 2 * 2 + 2
    close(gradients(encoder), expected)


def test_a_compiled_encoder_gives_the_same() -> None:
    encoder, views = mlp(nn.LayerNorm(12)), vectors()
    one_shot(encoder, views, nt_xent)
    expected = gradients(encoder)
    compiled: Any = torch.compile(encoder, backend="aot_eager")
    cached_backward(compiled, views, nt_xent, 7)
    close(gradients(encoder), expected)


# Several ranks.


class SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> Tensor:
        return SumOverRanks.forward(ctx, gradient[0])


class GatheredNTXent:
    """The whole batch's loss on every rank; as each of W ranks sends its gradient back, DDP's mean of the sums is exact."""

    def __init__(self, rows: slice, total: int) -> None:
        self.around = (0, 0, rows.start, total - rows.stop)

    def __call__(self, z1: Tensor, z2: Tensor) -> Tensor:
        whole1, whole2 = (SumOverRanks.apply(F.pad(z, self.around)) for z in (z1, z2))
        return nt_xent(whole1, whole2)


def ddp_encoder() -> nn.Module:
    torch.manual_seed(2)
    return frozen(mlp(nn.BatchNorm1d(12), nn.GroupNorm(3, 12))).double()


def three_steps(encoder: nn.Module, step: Callable[[], Tensor]) -> list[Tensor]:
    """The loss and the parameters' gradients at each of three steps of descent."""
    found = []
    for _ in range(3):
        found.append(step())
        found += [p.grad.clone() for p in encoder.parameters() if p.grad is not None]
        torch.optim.SGD(encoder.parameters(), 0.5).step()
        encoder.zero_grad()
    return found


DDP_OPTIONS: list[dict[str, Any]] = [{}, {"find_unused_parameters": True}, {"gradient_as_bucket_view": True}]


def _on_rank(rank: int, world_size: int, views: Tensor, rows: list[slice]) -> list[list[Tensor]]:
    loss = GatheredNTXent(rows[rank], views.shape[1])
    mine = tuple(view[rows[rank]] for view in views)
    results = []
    for options in DDP_OPTIONS:
        encoder = DistributedDataParallel(ddp_encoder(), **options)
        results.append(three_steps(encoder, lambda: cached_backward(encoder, mine, loss, 4)))  # noqa: B023
    with pytest.raises(ValueError, match="static_graph"):
        cached_backward(DistributedDataParallel(ddp_encoder(), static_graph=True), mine, loss, 4)
    image, text = (DistributedDataParallel(ddp_encoder()) for _ in range(2))
    with image.no_sync(), text.no_sync():  # the caller's accumulation over batches, to which this step adds
        cached_backward((image, text), mine, loss, 4)
    cached_backward((image, text), mine, loss, 4)
    results.append(gradients(image, text))
    return results


def test_ranks_with_unequal_rows_and_chunks_give_one_processs_gradient_at_every_step(tmp_path: Path) -> None:
    views = torch.randn(2, 13, 6, dtype=torch.float64)
    encoder = ddp_encoder()
    exact = three_steps(encoder, lambda: one_shot(encoder, tuple(views), nt_xent))
    image, text = ddp_encoder(), ddp_encoder()
    nt_xent(image(views[0]), text(views[1])).backward()
    twice = [2 * g for g in gradients(image, text)]
    for results in on_ranks(2, _on_rank, tmp_path, views, [slice(0, 10), slice(10, 13)]):
        for measured in results[:-1]:
            for a, b in zip(measured, exact, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)
        close(results[-1], twice)


# Bad input.


def _with(output: Callable[[Tensor], Any]) -> nn.Module:
    encoder = mlp()
    encoder.register_forward_hook(lambda module, inputs, z: output(z))
    return encoder


X = torch.ones(4, 6, dtype=torch.float64)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: cached_backward(mlp(), (X, X), nt_xent, 0), ValueError, "chunk_size must be at least 1, got 0"),
        (lambda: cached_backward(mlp(), (X, X), nt_xent, 2.0), TypeError, "chunk_size must be a whole number, got float"),  # type: ignore[arg-type]
        (lambda: cached_backward(mlp(), (), nt_xent, 2), ValueError, "views must hold at least one view"),
        (lambda: cached_backward(mlp(), X, nt_xent, 2), TypeError, r"sequence of views, such as \(view1, view2\), got Tensor"),  # type: ignore[arg-type]
        (lambda: cached_backward(mlp(), (X, X[:3]), nt_xent, 2), ValueError, "same number of rows, got 4, 3"),
        (
            lambda: cached_backward(mlp(), (X[:0], X[:0]), nt_xent, 2),
            ValueError,
            r"views\[0\] must have one or more .* rows .*\(0, 6\)",
        ),
        (lambda: cached_backward(mlp(), (X, (X, X[:3])), nt_xent, 2), ValueError, r"views\[1\] .* shapes \(4, 6\), \(3, 6\)"),
        (lambda: cached_backward(mlp(), (X, X.sum()), nt_xent, 2), ValueError, r"views\[1\] must have .* rows .* shapes \(\)"),
        (lambda: cached_backward(mlp(), (X, ()), nt_xent, 2), ValueError, r"views\[1\] must have .* rows .* shapes none"),
        (lambda: cached_backward(mlp(), (X, "text"), nt_xent, 2), TypeError, r"views\[1\] must be a tensor, .* got str"),
        (
            lambda: cached_backward(mlp(), (X, X.clone().requires_grad_()), nt_xent, 2),
            ValueError,
            "views must not require grad",
        ),
        (lambda: cached_backward(F.relu, (X, X), nt_xent, 2), TypeError, "encoder must be an nn.Module, .* got .*function"),  # type: ignore[arg-type]
        (lambda: cached_backward([mlp()], (X, X), nt_xent, 2), ValueError, "one per view, got 1 for 2 views"),
        (
            lambda: cached_backward(_with(lambda z: z[:1]), (X, X), nt_xent, 2),
            ValueError,
            r"output must have 2 rows .*\(1, 5\)",
        ),
        (
            lambda: cached_backward(_with(lambda z: z.sum()), (X, X), nt_xent, 2),
            ValueError,
            r"output must have 2 rows .* shapes \(\)",
        ),
        (
            lambda: cached_backward(_with(lambda z: (z, None)), (X, X), nt_xent, 2),
            TypeError,
            "output must be a tensor, .* NoneType",
        ),
        (
            lambda: cached_backward(mlp(), (X, X), lambda a, b: a, 2),
            ValueError,
            r"loss must return a scalar, got shape \(4, 5\)",
        ),
        (lambda: cached_backward(mlp(), (X, X), lambda a, b: 1.0, 2), TypeError, "scalar tensor, got float"),  # type: ignore[arg-type,return-value]
        (
            lambda: cached_backward(mlp(), (X, X), lambda a, b: a.detach().sum(), 2),
            ValueError,
            "loss must depend on parameters",
        ),
        (lambda: cached_backward(mlp().requires_grad_(False), (X, X), nt_xent, 2), ValueError, "is everything frozen"),
        (
            lambda: cached_backward(mlp(), (X, X), lambda a, b: nn.Linear(5, 1).double()(a.detach()).sum(), 2),
            ValueError,
            "no gradient reached them: does it detach them",
        ),
        (lambda: torch.no_grad()(cached_backward)(mlp(), (X, X), nt_xent, 2), RuntimeError, "gradients, but they are off"),
    ],
)
def test_bad_input_is_refused_with_what_was_given_and_what_is_wanted(
    call: Callable[[], Tensor], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()


# On a GPU.


@pytest.mark.parametrize("mode", [None, *(pytest.param(x, marks=pytest.mark.slow) for x in ("default", "reduce-overhead"))])
@pytest.mark.parametrize("views_on", ["cpu", "cuda"])
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_gpus_masks_are_replayed_wherever_the_views_are(views_on: str, mode: str | None) -> None:
    module = mlp(nn.Dropout(0.4)).cuda()
    module.register_forward_pre_hook(lambda module, inputs: tuple(x.cuda() for x in inputs))
    encoder: Any = torch.compile(module, mode=mode) if mode else module
    same_masks: Any = torch.compile(module) if mode else module  # and no CUDA graphs, whose outputs are overwritten
    views = tuple(view.to(views_on) for view in vectors())
    torch.manual_seed(1)
    exact = one_shot(same_masks, views, nt_xent, 8)
    expected, following = gradients(module), torch.rand(3, device="cuda")
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(
            parameter
        )  # CUDA graphs add up nowhere else: github.com/pytorch/pytorch/issues/169545
    torch.manual_seed(1)
    value = cached_backward(encoder, views, nt_xent, 8)
    assert torch.equal(torch.rand(3, device="cuda"), following)
    assert value.item() == pytest.approx(exact.item(), rel=1e-12)
    close(gradients(module), expected)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_memory_grows_with_the_chunk_and_not_with_the_batch() -> None:
    encoder = nn.Sequential(nn.Conv2d(3, 32, 3), nn.GroupNorm(4, 32), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()).cuda()
    peaks = []
    for rows in (64, 512):
        views = tuple(torch.randn(2, rows, 3, 64, 64, device="cuda"))
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        cached_backward(encoder, views, nt_xent, 32)
        peaks.append(torch.cuda.max_memory_allocated() - before)
    assert peaks[1] < 1.1 * peaks[0]
