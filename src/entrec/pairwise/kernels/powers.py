"""|x|^p and its derivative, for kernels that look at differences."""

import triton
import triton.language as tl

_WHOLE = (1.0, 2.0, 3.0, 4.0)  # exponents by products; any other takes two functions of the card's slowest unit


def kind(p: float) -> int:
    """The exponent, where the kernels are to know it beforehand; else 0."""
    return int(p) if p in _WHOLE else 0


@triton.jit
def power(x, p, KIND: tl.constexpr):
    """|x|^p, with a small whole exponent known beforehand."""
    if KIND == 1:
        y = tl.abs(x)
    elif KIND == 2:
        y = x * x
    elif KIND == 3:
        y = tl.abs(x) * x * x
    elif KIND == 4:
        y = x * x * x * x
    else:
        size = tl.abs(x)
        y = tl.where(size > 0, tl.exp2(p * tl.log2(tl.where(size > 0, size, 1.0))), 0.0)
    return y


@triton.jit
def slope(x, p, KIND: tl.constexpr):
    """The derivative of |x|^p, over p; zero at x = 0."""
    if KIND == 1:
        y = tl.minimum(tl.maximum(x * 1e38, -1.0), 1.0)  # the sign, in fewer instructions than by comparing
    elif KIND == 2:
        y = x
    elif KIND == 3:
        y = tl.abs(x) * x
    elif KIND == 4:
        y = x * x * x
    else:
        size = tl.abs(x)
        steep = tl.where(size > 0, tl.exp2((p - 1) * tl.log2(tl.where(size > 0, size, 1.0))), 0.0)
        y = tl.where(x > 0, steep, -steep)
    return y
