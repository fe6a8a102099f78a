"""Checks at the edge of the library: what was given, and what is wanted.

Shapes, dtypes and devices are known on the host, so those checks always run. What the *values* are is known only on the
device, and asking for it stops the host until the device has caught up. `ValueChecks` therefore asks once per call in
eager code, and where asking is impossible or unwanted (`torch.compile`, CUDA-graph capture, `validate=False`) it sets
bits of one flag on the device instead, which `raise_if_invalid` reads whenever the caller can afford to wait.
"""

import math
from collections.abc import Callable, Sequence
from enum import IntFlag
from numbers import Integral, Real
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor, nn

from entrec.cards import is_transformed, runs_kernels

try:
    from entrec import device_checks
except ImportError:  # no Triton: the same checks in several steps
    device_checks = None  # type: ignore[assignment]


class Fault(IntFlag):
    """What a value check can find wrong; the bits of the flag on the device."""

    NOT_FINITE = 1
    ZERO_VECTOR = 2
    NOT_A_DISTRIBUTION = 4
    NOT_POSITIVE = 8


_MEANING = {
    Fault.NOT_FINITE: "an input held NaN or infinity",
    Fault.ZERO_VECTOR: "an input held a zero vector where a direction is needed",
    Fault.NOT_A_DISTRIBUTION: "probabilities were negative or did not sum to one",
    Fault.NOT_POSITIVE: "a parameter of a density was not positive",
}


class _Flags(nn.Module):
    """One flag per device, each a buffer: torch.compile gives up its CUDA graph where a step writes to other tensors."""

    def on(self, x: Tensor) -> Tensor:
        """The flag of the device where x is, made on first use."""
        if torch.compiler.is_compiling():
            from torch._dynamo.comptime import comptime  # slow to import, but here it has been

            comptime(_make_flag)  # now, not in the graph: what a CUDA graph makes, its next run overwrites
        flag = self._buffers.get(str(x.device))
        return self.make(x.device) if flag is None else flag

    def make(self, device: torch.device) -> Tensor:
        """The device's flag, if it has none yet."""
        with torch.inference_mode(False):  # made under inference mode, it could not be written to outside
            flag = self._buffers[str(device)] = torch.zeros((), dtype=torch.int32, device=device)
        return flag


def _make_flag(context: Any) -> None:
    """Run by torch.compile as it reads `_Flags.on`: make sure that its device has a flag."""
    device = context.get_local("x").as_fake().device
    if str(device) not in _flags._buffers:
        _flags.make(device)


_flags = _Flags()


def raise_if_invalid() -> None:
    """Read, clear and report the faults that compiled, captured or unvalidated calls have found since the last read.

    Costs one synchronisation per device that was used; call it where you log.

    Raises:
        ValueError: naming each kind of fault that was found.
    """
    found = Fault(0)
    for flag in _flags.buffers():
        found |= Fault(int(flag))
        flag.zero_()
    if found:
        faults = "; ".join(meaning for fault, meaning in _MEANING.items() if fault in found)
        raise ValueError(f"a compiled, captured or unvalidated call could not report this when it happened: {faults}")


class _Check(NamedTuple):
    """A question to the device, what it would mean if the answer were no, and the words for it."""

    holds: Callable[[], Tensor]
    fault: Fault
    complaint: Callable[[], str]


def _finite(name: str, x: Tensor) -> _Check:
    return _Check(
        lambda: torch.isfinite(x).all(),
        Fault.NOT_FINITE,
        lambda: f"{name} must be finite, but {int((~torch.isfinite(x)).sum())} of its {x.numel()} entries are NaN or infinite",
    )


def _nonzero(name: str, x: Tensor) -> _Check:
    def complaint() -> str:
        zero = (x == 0).all(dim=-1)
        return f"{name} must hold directions on the sphere, but {int(zero.sum())} of its {zero.numel()} rows are zero vectors"

    return _Check(lambda: (x != 0).any(dim=-1).all(), Fault.ZERO_VECTOR, complaint)


class ValueChecks:
    """The value checks of one call: gathered first, then answered together by one look at the device.

    Args:
        validate: look now and raise; `False` sets the device's flag instead, as compiled and captured code always do.
    """

    def __init__(self, validate: bool = True) -> None:
        self._validate = validate
        self._checks: list[_Check] = []
        self._fused: list[tuple[Tensor, bool, list[_Check]]] = []  # points, whether directions, and the same in plain steps

    def finite(self, name: str, x: Tensor) -> None:
        """Every entry of `x` is a finite number."""
        x = x.detach()
        self._add(x, False, [_finite(name, x)])

    def directions(self, name: str, x: Tensor) -> None:
        """Every row of `x` is finite and has a direction."""
        x = x.detach()
        self._add(x, True, [_finite(name, x), _nonzero(name, x)])

    def _add(self, x: Tensor, directions: bool, steps: list["_Check"]) -> None:
        if device_checks is not None and runs_kernels(x) and not torch.compiler.is_compiling() and not is_transformed(x):
            self._fused.append((x, directions, steps))
        else:
            self._checks += steps

    def distributions(self, name: str, p: Tensor, rounded_to: torch.dtype | None = None) -> None:
        """Every row of `p` is non-negative and sums to one, within the rounding of its dtype (or of the one it had)."""
        self.finite(name, p)
        info = torch.finfo(rounded_to or p.dtype)
        # Half precision rounds each entry, and the smallest ones to a multiple of the least number above zero.
        self._sums_to_one(name, p, 4 * info.eps + p.shape[-1] * info.smallest_normal * info.eps)

    def log_distributions(self, name: str, log_p: Tensor) -> None:
        """Every row of `log_p` holds the logarithms of probabilities; -infinity stands for zero."""
        nan = torch.isnan(log_p.detach())
        self._checks.append(
            _Check(
                lambda: ~nan.any(),
                Fault.NOT_FINITE,
                lambda: f"{name} must hold log-probabilities, but {int(nan.sum())} entries are NaN",
            )
        )
        # A logarithm of size L, rounded to a relative eps, moves its probability by a factor of 1 +- L eps.
        rounding = 4 * torch.finfo(log_p.dtype).eps * (1 + math.log(log_p.shape[-1]))
        self._sums_to_one(f"exp({name})", at_least_float32(log_p).exp(), rounding)

    def positive(self, name: str, x: Tensor) -> None:
        """Every entry of the parameter `x` is positive and finite."""
        x = x.detach()
        self._checks.append(
            _Check(
                lambda: (torch.isfinite(x) & (x > 0)).all(),
                Fault.NOT_POSITIVE,
                lambda: f"{name} must be positive and finite, got {x.tolist()}",
            )
        )

    def raise_or_flag(self) -> None:
        """Raise the first fault found, or leave all of them in the device's flag."""
        if not self._checks and not self._fused:
            return
        # Where the points are; a density's parameter may have stayed on the CPU.
        where = self._fused[0][0] if self._fused else self._checks[0].holds()
        device = where.device
        # The flag is fetched on every path, so that it exists before a capture: made during one, it would be the graph's.
        flag = _flags.on(where)
        if torch.compiler.is_compiling() or not self._validate or _capturing(device):
            self._look(flag)
            for check in self._checks:
                flag.bitwise_or_((~check.holds()).to(device, flag.dtype) * int(check.fault))
            return
        fused = torch.zeros_like(flag)
        self._look(fused)
        answers = [check.holds().to(device) for check in self._checks]
        if not answers:
            if int(fused) == 0:
                return
        elif torch.stack([fused == 0, *answers]).all():
            return
        for check in (*(step for _, _, steps in self._fused for step in steps), *self._checks):
            if not check.holds():
                raise ValueError(check.complaint())

    def _look(self, flag: Tensor) -> None:
        for x, directions, _ in self._fused:
            device_checks.look(x, flag, directions)

    def _sums_to_one(self, name: str, p: Tensor, rounding: float) -> None:
        p = at_least_float32(p.detach())
        total = p.sum(dim=-1)
        tolerance = max(1e-4, rounding)
        self._checks.append(
            _Check(
                lambda: (p >= 0).all() & ((total - 1).abs() <= tolerance).all(),
                Fault.NOT_A_DISTRIBUTION,
                lambda: (
                    f"{name} must hold probabilities: entries at least 0 and rows summing to 1 within {tolerance:.0e}, got "
                    f"entries down to {float(p.min()):.4g}, rows summing to {float(total.min()):.6g}...{float(total.max()):.6g}"
                ),
            )
        )


def _capturing(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def at_least_float32(x: Tensor) -> Tensor:
    """Half-precision tensors as float32, all others as they are: every value is computed in float32 or better."""
    return x.float() if torch.finfo(x.dtype).bits < 32 else x


def floating(name: str, x: Any) -> None:
    """`x` is a tensor of real floating-point numbers."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(x).__name__}")
    if not x.dtype.is_floating_point:
        raise TypeError(f"{name} must be a floating-point tensor, got {x.dtype}")


def batch(name: str, x: Any, min_rows: int = 1, why: str = "", leading: bool = False) -> None:
    """`x` is a floating-point tensor of shape (k, d), or (..., k, d), with at least `min_rows` rows and one column."""
    floating(name, x)
    if x.ndim != 2 and not (leading and x.ndim > 2):
        raise ValueError(f"{name} must have shape (k, d){' or (..., k, d)' if leading else ''}, got {tuple(x.shape)}")
    if x.shape[-2] < min_rows or x.shape[-1] < 1:
        needed = f"at least {min_rows} row{'s' if min_rows > 1 else ''}{why}" if x.shape[-1] else "at least 1 column"
        raise ValueError(f"{name} must have {needed}, got shape {tuple(x.shape)}")


def on_a_sphere(name: str, x: Tensor) -> None:
    """The rows of `x` have room for directions."""
    if x.shape[-1] < 2:
        raise ValueError(f"{name} must have at least 2 columns to lie on a sphere, got shape {tuple(x.shape)}")


def alike(first: str, a: Tensor, second: str, b: Tensor, rows: bool = True) -> None:
    """`a` and `b` have the same shape (or, with `rows=False`, the same last dimension) and live on one device."""
    same = a.shape == b.shape if rows else a.shape[-1] == b.shape[-1]
    if not same:
        what = "the same shape" if rows else "the same last dimension"
        raise ValueError(f"{first} and {second} must have {what}, got {tuple(a.shape)} and {tuple(b.shape)}")
    same_device(first, a, second, b)


def same_device(first: str, a: Tensor, second: str, b: Tensor) -> None:
    """`a` and `b` live on one device."""
    if a.device != b.device:
        raise ValueError(f"{first} and {second} must be on the same device, got {a.device} and {b.device}")


def positive(name: str, x: Any, values: ValueChecks | None = None) -> float | Tensor:
    """`x` is a positive finite number, or a floating-point tensor of them, which joins `values` or is looked at now."""
    if isinstance(x, Tensor):
        floating(name, x)
        if values is not None:
            values.positive(name, x)
            return x
        now = ValueChecks()
        now.positive(name, x)
        now.raise_or_flag()
        return x
    if isinstance(x, bool) or not isinstance(x, Real):
        raise TypeError(f"{name} must be a number or a floating-point tensor, got {type(x).__name__}")
    value = float(x)
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be positive and finite, got {x}")
    return value


def single(name: str, x: float | Tensor) -> None:
    """The parameter `x` is one number, not a tensor of several."""
    if isinstance(x, Tensor) and x.numel() != 1:
        raise ValueError(f"{name} must be a number or a tensor of one element, got shape {tuple(x.shape)}")


def whole(name: str, x: Any, at_least: int) -> int:
    """`x` is a whole number of at least `at_least`."""
    if isinstance(x, bool) or not isinstance(x, int | Integral):
        raise TypeError(f"{name} must be a whole number, got {type(x).__name__}")
    if x < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {x}")
    return int(x)


def choice(name: str, x: Any, options: Any) -> None:
    """`x` is one of the words of a `Literal`."""
    words: Sequence[Any] = get_args(options)
    if x not in words:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, words))}, got {x!r}")


def same_dtype(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in the widest of their dtypes, float32 at the least."""
    dtype = torch.float32
    for x in tensors:
        dtype = torch.promote_types(dtype, x.dtype)
    return tuple(x.to(dtype) for x in tensors)
