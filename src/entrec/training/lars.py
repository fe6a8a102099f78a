"""LARS: momentum SGD whose step is a fixed share of each layer's own length."""

from collections.abc import Callable, Iterable
from typing import Any, overload

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from entrec import checks


class LARS(Optimizer):
    r"""Layer-wise adaptive rate scaling (You et al., 2017, Algorithm 1), in the form that SimCLR and BYOL train with.

    .. math:: d = g + \lambda p, \quad r = \eta \frac{|p|}{|d|}, \quad m \leftarrow \mu m + r d, \quad p \leftarrow p - \gamma m

    Each parameter tensor is a layer. Where |p| or |d| is zero, r = 1, so parameters that start at zero do move. The rate enters
    at the step and not in the buffer, as in BYOL's code and in `torch.optim.SGD`, so a schedule acts at once on the whole step.
    Groups with `adapt=False` (biases and norms, see `parameter_groups`) take plain momentum steps: r = 1 and no decay.

    No step waits for the device. In a CUDA graph, take a step before capture, so that the buffers are not the graph's, and give
    `lr` as a tensor on the device if the rate is to change between replays.

    Args:
        params: parameters, or groups of them; a group may have values of its own for everything below.
        lr: the rate gamma, a number of at least 0 or a tensor of one.
        momentum: mu, at least 0 and below 1.
        weight_decay: lambda, at least 0.
        trust: the trust coefficient eta, positive.
        nesterov: step by r d + mu m with the new m, instead of by m.
        adapt: whether a group has adaptation and decay.

    Example:
        >>> p = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
        >>> p.grad = torch.tensor([0.0, 10.0])
        >>> LARS([p], lr=1.0, trust=0.1).step()  # a step of length 0.1 * |p| = 0.5
        >>> p.data
        tensor([3.0000, 3.5000])
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 0.001,
        nesterov: bool = False,
        adapt: bool = True,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust}
        super().__init__(params, defaults | {"nesterov": nesterov, "adapt": adapt})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters, with values of its own or the optimizer's."""
        _check(self.defaults | param_group)
        super().add_param_group(param_group)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Move every parameter that has a gradient; `closure` computes the loss and the gradients first."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for params in _alike(p for p in group["params"] if p.grad is not None):
                self._move(params, group)
        return loss

    def _move(self, params: list[Tensor], group: dict[str, Any]) -> None:
        """The step of parameters that share a group, a device and a dtype."""
        gradients = [p.grad.to(p.dtype) for p in params if p.grad is not None]
        buffers = [self._buffer(p) for p in params]
        _moved(params, gradients, buffers, **{key: value for key, value in group.items() if key != "params"})

    def _buffer(self, p: Tensor) -> Tensor:
        """The momentum m of a parameter, zeros at first."""
        state = self.state[p]
        if "momentum_buffer" not in state:
            if p.is_cuda and torch.cuda.is_current_stream_capturing():
                raise RuntimeError("a parameter without momentum met a CUDA graph's capture: take a LARS step before capturing")
            state["momentum_buffer"] = torch.zeros_like(p, memory_format=torch.preserve_format)
        buffer: Tensor = state["momentum_buffer"]
        return buffer


def _moved(
    params: list[Tensor],
    gradients: list[Tensor],
    buffers: list[Tensor],
    lr: float | Tensor,
    momentum: float,
    weight_decay: float,
    trust: float,
    nesterov: bool,
    adapt: bool,
) -> None:
    """Change parameters and buffers by a step."""
    update = _adapted(params, gradients, weight_decay, trust) if adapt else gradients
    torch._foreach_mul_(buffers, momentum)
    torch._foreach_add_(buffers, update)
    moves = list(torch._foreach_add(update, buffers, alpha=momentum)) if nesterov else buffers
    if isinstance(lr, Tensor):
        torch._foreach_sub_(params, torch._foreach_mul(moves, lr.reshape(()).to(params[0].device)))
    else:
        torch._foreach_add_(params, moves, alpha=-lr)


def _adapted(params: list[Tensor], gradients: list[Tensor], weight_decay: float, trust: float) -> list[Tensor]:
    """The decayed gradients d = g + lambda p, each times its r; lengths are in float32 or better."""
    d = list(torch._foreach_add(gradients, params, alpha=weight_decay)) if weight_decay else gradients
    dtype = torch.promote_types(params[0].dtype, torch.float32)
    p_length = torch.stack(torch._foreach_norm(params, 2, dtype=dtype))
    d_length = torch.stack(torch._foreach_norm(d, 2, dtype=dtype))
    # A length is a root of summed squares, so it is zero or at least 1e-23 and the quotient cannot overflow.
    ratio = torch.where((p_length > 0) & (d_length > 0), trust * p_length / d_length, 1.0)
    return list(torch._foreach_mul(d, ratio.unbind()))


def _alike(params: Iterable[Tensor]) -> list[list[Tensor]]:
    """The parameters by device and dtype, in the order given: what one multi-tensor operation takes."""
    alike: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for p in params:
        alike.setdefault((p.device, p.dtype), []).append(p)
    return list(alike.values())


def _check(group: dict[str, Any]) -> None:
    lr, momentum, weight_decay = group["lr"], group["momentum"], group["weight_decay"]
    if isinstance(lr, Tensor):
        checks.single("lr", lr)
    elif not lr >= 0:
        raise ValueError(f"lr must be at least 0, got {lr}")
    if not 0 <= momentum < 1:
        raise ValueError(f"momentum must be at least 0 and below 1, got {momentum}")
    if not weight_decay >= 0:
        raise ValueError(f"weight_decay must be at least 0, got {weight_decay}")
    checks.positive("trust", group["trust"])
    if group["nesterov"] and momentum == 0:
        raise ValueError("nesterov=True needs a momentum above 0, got 0")
