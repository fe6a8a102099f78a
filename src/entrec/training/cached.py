"""A backward pass for losses that couple the whole batch, in the memory of one chunk of it.

Where a row's loss depends on the other rows (an entropy, negatives), the batch's loss is not a sum of its chunks' losses. Its
gradient still is a sum over chunks: with z = encoder(view), row by row, the chain rule gives

    dL/dw = sum over chunks c of (dz_c/dw)^T dL/dz_c

So the encoder runs twice: over all chunks without a graph, for z, the loss and dL/dz, and chunk by chunk with one, for dz_c/dw.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from entrec import checks
from entrec.training.replay import Buffers, RandomState

_ROUNDING = 0.1  # between the passes: some percents in half precision; masks that were not replayed make tens of percents


def cached_backward(
    encoder: nn.Module | Sequence[nn.Module],
    views: Sequence[Any],
    loss: Callable[..., Tensor],
    chunk_size: int,
    *,
    chunk_statistics: bool = False,
    scaler: torch.amp.GradScaler | None = None,
) -> Tensor:
    """Add to `.grad` what `loss(encoder(view1), encoder(view2), ...).backward()` would, in the memory of one chunk.

    Memory is that of `chunk_size` rows through the encoder and of the loss on all outputs; the price is a second forward pass.
    The gradient is the whole batch's, to rounding, where the encoder treats each row alone: GroupNorm, LayerNorm, BatchNorm in
    eval mode. Train-mode BatchNorm does not, and is refused unless `chunk_statistics=True`.

    Both passes draw the same numbers (dropout) from torch's own generators on the CPU and on the devices of view and encoder;
    afterwards these stand where the first pass and the loss left them, and so do the encoder's buffers. Inside `autocast`, both
    passes and the loss run under it, and the backward passes outside it, as they should. With `DistributedDataParallel`,
    gradients are averaged once, in the last chunk's backward; ranks may have different numbers of rows and chunks. CUDA graphs
    (`torch.compile`'s `"reduce-overhead"`) add up only where `.grad` is a tensor already: `zero_grad(set_to_none=False)`.

    Args:
        encoder: a module from a chunk of a view to a tensor of as many rows, or to a tuple of them (projection and prediction);
            or as many modules as views, such as `(student, student, teacher, teacher)`. No function, which would hide its
            BatchNorms. Where there is nothing to train, or the loss sends no gradient, the second pass is left out.
        views: one or more tensors of shape (n, ...), or tuples or dicts of such tensors, which the encoder gets as its one
            argument. They may not require grad: no gradient is given to them.
        loss: called once, with the whole output of each view; returns a scalar. Its own parameters get their gradient too.
        chunk_size: rows that go through the encoder at a time; from n on, each view is one chunk.
        chunk_statistics: let train-mode BatchNorm use each chunk's statistics. The gradient is exact for that objective, which
            is not the whole batch's; running statistics move once per chunk. SyncBatchNorm needs as many chunks on every rank.
        scaler: if given, the gradient is that of `scaler.scale(loss)`.

    Returns:
        The loss, detached and not scaled.

    Raises:
        RuntimeError: if the second pass did not give what the first gave, because the encoder's forward draws numbers elsewhere
            (NumPy, `random`, a `torch.Generator` of its own) or reads state that it writes. `.grad` is then wrong.

    Example:
        >>> from entrec import VonMisesFisher
        >>> from entrec.losses import ERLoss
        >>> encoder = nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 16))
        >>> views = torch.randn(512, 32), torch.randn(512, 32)
        >>> value = cached_backward(encoder, views, ERLoss(VonMisesFisher(10.0)), chunk_size=64)
        >>> encoder[0].weight.grad.shape  # of all 512 rows' loss, with never more than 64 in the encoder
        torch.Size([64, 32])
    """
    branches = _branches(encoder, views, checks.whole("chunk_size", chunk_size, at_least=1))
    if not chunk_statistics:
        _refuse_batch_statistics(branches)
    if not torch.is_grad_enabled():
        raise RuntimeError("cached_backward adds to gradients, but they are off here (torch.no_grad or torch.inference_mode)")

    outputs = [branch.encode() for branch in branches]
    torch.clear_autocast_cache()  # some versions keep the weights cast under no_grad there, which then get no gradient
    value = loss(*outputs)
    _differentiate(value, branches, scaler)

    random = RandomState(set().union(*(branch.devices for branch in branches)))
    buffers = Buffers(branch.encoder for branch in branches)
    try:
        _encode_again(branches)
    finally:
        random.restore()
        buffers.restore()
    return value.detach()


class _Branch:
    """A view and its encoder: the view's chunks and, from the first pass, their random states and the whole outputs."""

    def __init__(self, encoder: nn.Module, view: Any, chunk_size: int) -> None:
        tensors = tree_leaves(view)
        self.encoder = encoder
        self.rows = [slice(start, start + chunk_size) for start in range(0, len(tensors[0]), chunk_size)]
        self.chunks = [tree_map(lambda x, rows=rows: x[rows], view) for rows in self.rows]
        self.devices = {x.device for x in (*tensors, *encoder.parameters(), *encoder.buffers())}
        self.replicas = [module for module in encoder.modules() if isinstance(module, DistributedDataParallel)]
        self.trained = any(parameter.requires_grad for parameter in encoder.parameters())
        self.states: list[RandomState] = []
        self.outputs: list[Tensor] = []

    @torch.no_grad()
    def encode(self) -> Any:
        """The first pass: the whole output in the encoder's own form, of leaves that will hold the loss's gradient."""
        parts = []
        for chunk in self.chunks:
            self.states.append(RandomState(self.devices))
            tensors, form = tree_flatten(self.encoder(chunk))
            _number_of_rows("the encoder's output", tensors, wanted=len(tree_leaves(chunk)[0]))
            parts.append([x.clone() for x in tensors])  # where a CUDA graph gave them, its next run overwrites them
        self.outputs = [torch.cat(part) for part in zip(*parts, strict=True)]
        for x in self.outputs:
            x.requires_grad_(self.trained and (x.is_floating_point() or x.is_complex()))
        return tree_unflatten(self.outputs, form)

    def encode_again(self, i: int) -> list[Tensor]:
        """The second pass of chunk i, and back through it; returns whether its outputs differ from the first pass's."""
        self.states[i].restore()
        pairs = zip(tree_leaves(self.encoder(self.chunks[i])), self.outputs, strict=True)
        rows = self.rows[i]
        reached = [(x, y.detach()[rows], y.grad[rows]) for x, y in pairs if x.requires_grad and y.grad is not None]
        differ = [_differ(x.detach(), first) for x, first, _ in reached]
        if reached:
            _backward([x for x, _, _ in reached], [gradient for _, _, gradient in reached])
        return differ

    def has_gradient(self) -> bool:
        """Whether the loss's gradient has reached an output."""
        return any(x.grad is not None for x in self.outputs)


def _differentiate(value: Any, branches: Sequence[_Branch], scaler: torch.amp.GradScaler | None) -> None:
    """The gradient of the loss at the outputs, and at its own parameters."""
    if not isinstance(value, Tensor):
        raise TypeError(f"loss must return a scalar tensor, got {type(value).__name__}")
    if value.numel() != 1:
        raise ValueError(f"loss must return a scalar, got shape {tuple(value.shape)}")
    if not value.requires_grad:
        raise ValueError("loss must depend on parameters that require grad, the encoder's or its own: is everything frozen?")
    scaled = value if scaler is None else scaler.scale(value)
    _backward([scaled], [torch.ones_like(scaled)])
    trained = [branch for branch in branches if branch.trained]
    if trained and not any(branch.has_gradient() for branch in trained):
        raise ValueError("loss must depend on the encoder's outputs, but no gradient reached them: does it detach them?")


def _encode_again(branches: Sequence[_Branch]) -> None:
    """The second pass over all chunks, in the first one's order; replicas communicate in the last backward of each."""
    steps = [(branch, i) for branch in branches if branch.has_gradient() for i in range(len(branch.chunks))]
    last = {replica: step for step, (branch, _) in enumerate(steps) for replica in branch.replicas}
    differ: list[Tensor] = []
    for step, (branch, i) in enumerate(steps):
        with ExitStack() as silent:
            for replica in branch.replicas:
                if step != last[replica]:
                    silent.enter_context(replica.no_sync())
            differ += branch.encode_again(i)
    if differ and any(torch.stack([x.to(differ[0].device) for x in differ]).tolist()):
        raise RuntimeError(
            "encoder must give the same outputs for the same chunk twice, but did not: its forward must keep no state and draw "
            "from torch's generators only, not from NumPy, `random` or a generator of its own; what was added to .grad is wrong"
        )


def _backward(outputs: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
    """Backward outside autocast, which would round products in the gradient that the forward pass kept in full precision."""
    with torch.autocast("cpu", enabled=False), torch.autocast(outputs[0].device.type, enabled=False):
        torch.autograd.backward(outputs, gradients)


def _differ(x: Tensor, y: Tensor) -> Tensor:
    """Whether x and y differ by more than rounding; NaN differs from nothing."""
    x, y = checks.at_least_float32(x), checks.at_least_float32(y)
    return torch.gt((x - y).norm(), _ROUNDING * y.norm())


def _branches(encoder: Any, views: Any, chunk_size: int) -> list[_Branch]:
    """One branch per view, of checked views and encoders."""
    if not isinstance(views, Sequence):
        raise TypeError(f"views must be a sequence of views, such as (view1, view2), got {type(views).__name__}")
    if not views:
        raise ValueError("views must hold at least one view, got none")
    rows = [_number_of_rows(f"views[{v}]", tree_leaves(view)) for v, view in enumerate(views)]
    if any(x.requires_grad for x in tree_leaves(views)):
        raise ValueError("views must not require grad, since no gradient is given to them: detach them")
    if len(set(rows)) > 1:
        raise ValueError(f"views must have the same number of rows, got {', '.join(map(str, rows))}")
    encoders = list(encoder) if isinstance(encoder, Sequence | nn.ModuleList) else [encoder] * len(views)
    for x in encoders:
        if not isinstance(x, nn.Module):
            raise TypeError(f"encoder must be an nn.Module, or one per view, got {type(x).__name__}")
    if len(encoders) != len(views):
        raise ValueError(f"encoder must be one module or one per view, got {len(encoders)} for {len(views)} views")
    branches = [_Branch(x, view, chunk_size) for x, view in zip(encoders, views, strict=True)]
    if any(replica.static_graph for branch in branches for replica in branch.replicas):
        raise ValueError("encoder must not be DistributedDataParallel(static_graph=True), which allows no adding up of chunks")
    return branches


def _number_of_rows(name: str, tensors: Sequence[Any], wanted: int | None = None) -> int:
    """The rows that all of the tensors have in common."""
    for x in tensors:
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a tensor, or a tuple or dict of tensors, got {type(x).__name__}")
    rows = {len(x) if x.ndim else 0 for x in tensors}
    if len(rows) != 1 or 0 in rows or rows != {wanted or max(rows)}:
        shapes = ", ".join(str(tuple(x.shape)) for x in tensors) or "none"
        number = wanted or "one or more and the same number of"
        raise ValueError(f"{name} must have {number} rows in each of its tensors, got shapes {shapes}")
    return rows.pop()


def _refuse_batch_statistics(branches: Sequence[_Branch]) -> None:
    """BatchNorm normalises by the rows it is given in train mode, and in eval mode too if it tracks no running statistics."""
    chunked = dict.fromkeys(branch.encoder for branch in branches if len(branch.chunks) > 1)
    found = [
        f"{name or 'the encoder'} ({type(module).__name__})"
        for encoder in chunked
        for name, module in encoder.named_modules()
        if isinstance(module, _BatchNorm) and (module.training or module.running_mean is None)
    ]
    if found:
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        raise ValueError(
            f"encoder must treat each row alone, but {', '.join(found[:3])}{more} would use its chunk's statistics, not the "
            "batch's: use GroupNorm or LayerNorm, freeze running statistics by .eval(), or ask for it by chunk_statistics=True"
        )
