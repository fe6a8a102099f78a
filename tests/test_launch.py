"""Launches: what Triton has compiled once is taken again for arguments of the same kind, and for no others."""

from typing import Any

import pytest
import torch

from entrec import VonMisesFisher, kde_entropy, launch


class Kernel:
    """Stands for a kernel of Triton's: compiles for what it is given, and remembers what was launched."""

    arg_names = ("x", "n", "factor", "BLOCK")

    def __init__(self, takes: int = 4) -> None:
        self.takes, self.compiled, self.launched = takes, 0, [("", ())]
        self.launched.clear()

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def first(*arguments: Any, **constants: Any) -> "Compiled":
            self.compiled += 1
            self.launched.append(("by Triton", (*grid, *arguments, constants["BLOCK"])))
            return Compiled(self)

        return first


class Compiled:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def again(*arguments: Any) -> None:
            if len(arguments) != self.kernel.takes:
                raise TypeError("function takes another number of arguments")
            self.kernel.launched.append(("again", (*grid, *arguments)))

        return again


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_compiled", {})
    monkeypatch.setattr(launch, "_unusable", [])
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)


def test_the_same_kind_is_compiled_once() -> None:
    kernel, x = Kernel(), torch.zeros(8)
    for n in (32, 48, 64):
        launch.launch(kernel, (2,), x, n, 0.5, BLOCK=16, num_warps=4)
    assert kernel.compiled == 1
    assert kernel.launched == [("by Triton", (2, x, 32, 0.5, 16)), *(("again", (2, 1, 1, x, n, 0.5, 16)) for n in (48, 64))]


@pytest.mark.parametrize(
    "other",
    [(torch.zeros(8, dtype=torch.float16), 32, 0.5), (torch.zeros(9)[1:], 32, 0.5), (None, 32, 0.5)]
    + [(torch.zeros(8), n, 0.5) for n in (1, 33, 2**31)]
    + [(torch.zeros(8), 32, 2)],
    ids=["dtype", "alignment", "nothing", "one", "no multiple of 16", "64 bits", "whole number"],
)
def test_another_kind_is_compiled_again(other: tuple[Any, ...]) -> None:
    kernel = Kernel()
    launch.launch(kernel, (2,), torch.zeros(8), 32, 0.5, BLOCK=16)
    launch.launch(kernel, (2,), *other, BLOCK=16)
    assert [way for way, _ in kernel.launched] == ["by Triton"] * 2


def test_other_constants_and_other_kernels_are_compiled_again() -> None:
    one, two, x = Kernel(), Kernel(), torch.zeros(8)
    for kernel, block, warps in ((one, 16, 4), (one, 32, 4), (one, 16, 8), (two, 16, 4)):
        launch.launch(kernel, (2,), x, 32, 0.5, BLOCK=block, num_warps=warps)
    assert (one.compiled, two.compiled) == (3, 1)


def test_where_compiled_kernels_take_other_arguments_triton_launches() -> None:
    kernel, x = Kernel(takes=3), torch.zeros(8)
    for _ in range(4):
        launch.launch(kernel, (2,), x, 32, 0.5, BLOCK=16)
    assert [way for way, _ in kernel.launched] == ["by Triton"] * 4  # once each: nothing is launched twice


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_launches_of_every_kind_on_a_gpu() -> None:
    truth = torch.randn(3, 600, 33, dtype=torch.float64)
    memory = torch.zeros(3 * 600 * 33 + 1, device="cuda")
    for k in (600, 512, 16, 1, 600):
        for start in (0, 1):  # rows that begin at 16 bytes, and that do not
            z = memory[start : start + 3 * k * 33].view(3, k, 33)
            z.copy_(truth[:, :k])
            expected = kde_entropy(truth[:, :k], VonMisesFisher(10.0))
            for _ in range(2):
                torch.testing.assert_close(kde_entropy(z, VonMisesFisher(10.0)).cpu().double(), expected, rtol=1e-4, atol=1e-4)
    assert launch._unusable == []
