import io
import json
import os
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import Tensor

from entrec.bench import contestants, loss, memory, table, timing
from entrec.bench.contestants import DENSE, LIGHTLY, OURS, Contestant, What, compared
from entrec.bench.loss import float64_gradient, gradient_error
from entrec.bench.results import Benchmark, Row, write
from entrec.bench.settings import settings
from entrec.bench.timing import ProductRate, float32_products, forward_backward, milliseconds
from entrec.bench.views import unit_views

EVERY: list[What] = ["entropy", "er", "ntxent"]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def resident() -> Iterator[memory.ResidentMemory]:
    """One helper process for all tests: it takes seconds to import PyTorch."""
    with memory.ResidentMemory() as helper:
        yield helper


@pytest.fixture(scope="module")
def measured(resident: memory.ResidentMemory) -> Benchmark:
    """One run that has all cases: full ones, and one without dense (too large) and without a float64 gradient."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss, "ResidentMemory", lambda: nullcontext(resident))
        patch.setattr(loss, "REFERENCE_UP_TO", {"cpu": 1024})
        patch.setattr(timing, "_SECONDS", 0.01)
        patch.setattr(timing, "_SIDE", {"cpu": 256})
        patch.setattr(contestants, "find_spec", lambda name: None)
        return loss.run(settings(k=(64, 1024, 3000), d=(16,), device="cpu", repeats=1, dense_limit_gb=0.1))


def test_views_are_unit_and_alike() -> None:
    views = unit_views(500, 64, torch.float64)
    torch.testing.assert_close(views.norm(dim=-1), torch.ones(2, 500, dtype=torch.float64))
    assert float((views[0] * views[1]).sum(dim=-1).mean()) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("what", EVERY)
def test_all_contestants_compute_the_same(what: What) -> None:
    views = unit_views(37, 6, torch.float64)
    field = compared(what, 7.0, 6, "ieee")
    ours, dense = field.contestants[:2]
    assert (ours.name, dense.name) == (OURS, DENSE)
    reference = float64_gradient(dense, views)
    assert reference is not None
    value = dense.loss(*dense.leaves(views))
    for contestant in field.contestants:
        if contestant.as_ours:
            leaves = contestant.leaves(views)
            torch.testing.assert_close(contestant.loss(*leaves), value)
            forward_backward(contestant.loss, leaves)
            assert gradient_error(loss._gradient(leaves, views), reference) < 1e-12


def test_dense_follows_the_formula() -> None:
    u, v = unit_views(5, 3, torch.float64)
    joe = [-sum(torch.stack([3 * (a @ b) for b in z]).exp().mean().log() for a in z) / 5 for z in (u, v)]
    torch.testing.assert_close(contestants.dense_entropy(u, v, kappa=3.0, log_c=2.0), torch.as_tensor(sum(joe) / 2 - 2.0))
    rows = torch.cat([u, v])
    terms = [
        torch.stack([3 * (a @ b) for j, b in enumerate(rows) if j != i]).exp().sum().log() - 3 * (a @ rows[(i + 5) % 10])
        for i, a in enumerate(rows)
    ]
    torch.testing.assert_close(contestants.dense_ntxent(u, v, kappa=3.0), torch.stack(terms).mean())


def test_lightly_computes_our_nt_xent() -> None:
    pytest.importorskip("lightly")
    views = unit_views(20, 8, torch.float64)
    ours, _, lightly = compared("ntxent", 5.0, 8, "ieee").contestants
    assert lightly.name == LIGHTLY
    torch.testing.assert_close(lightly.loss(*lightly.leaves(views)), ours.loss(*ours.leaves(views)))


def test_without_lightly_the_rest_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contestants, "find_spec", lambda name: None)
    field = compared("ntxent", 10.0, 8, "fast")
    assert [contestant.name for contestant in field.contestants] == [OURS, DENSE]
    assert "pip install 'entrec[bench]'" in field.missing


def test_a_lightly_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(contestants, "find_spec", lambda name: object())
    monkeypatch.setattr(contestants, "import_module", broken)
    assert compared("er", 10.0, 8, "fast").missing.endswith("RuntimeError: operator torchvision::nms does not exist")


def test_operations_are_counted_with_the_symmetry() -> None:
    ours, _ = compared("entropy", 10.0, 128, "fast").contestants[:2]
    assert ours.operations(65536, 128) == pytest.approx(4.4e12, rel=0.01)
    assert compared("ntxent", 10.0, 128, "fast").contestants[0].operations(100, 8) == 4 * 200**2 * 8


def test_what_was_measured(measured: Benchmark) -> None:
    assert [(row.k, row.contestant) for row in measured.rows] == [(k, name) for k in (64, 1024, 3000) for name in (OURS, DENSE)]
    *full, ours, skipped = measured.rows
    for row in full:
        assert row.ms is not None
        assert row.fraction == pytest.approx(8 * row.k**2 * 16 / (row.ms / 1e3) / (1e12 * measured.product_rate.tflops))
        assert row.gradient_error is not None
        assert 0 < row.gradient_error < 1e-3
        assert row.note == ""
    assert ours.ms is not None
    assert ours.gradient_error is None  # beyond what float64 is asked for
    assert skipped == Row(3000, 16, DENSE, note="needs about 0.18 GB")
    assert measured.machine.threads == torch.get_num_threads()
    assert {"entrec", "torch", "python", "triton", "lightly"} == set(measured.machine.versions)


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="resident memory is measured on Linux")
def test_peak_memory_of_dense_is_its_estimate_and_ours_is_less(measured: Benchmark) -> None:
    ours, dense = (row.peak_mb for row in measured.rows if row.k == 1024)
    assert ours is not None
    assert dense is not None
    assert dense / (5 * 1024**2 * 4e-6) == pytest.approx(1.15, abs=0.3)
    assert ours < dense


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="resident memory is measured on Linux")
def test_a_case_that_fails_has_no_peak_and_the_next_one_does(resident: memory.ResidentMemory) -> None:
    case = memory.Case("entropy", DENSE, 64, 4, 10.0, "fast", "float32", 1)
    assert resident.growth(replace(case, k=2**40)) is None
    assert resident.growth(case) is not None


def test_the_error_is_relative_and_norm_wise() -> None:
    reference = torch.tensor([3.0, 0.0, 4.0], dtype=torch.float64)
    assert gradient_error(torch.tensor([3.0, 0.5, 4.0]), reference) == pytest.approx(0.1)


def _out_of_memory(*views: Tensor) -> Tensor:
    return torch.empty(2**50)


def _broken(*views: Tensor) -> Tensor:
    raise RuntimeError("something else")


def test_out_of_memory_is_said_and_other_errors_are_raised() -> None:
    views, chosen, rate = unit_views(4, 2, torch.float32), settings(device="cpu"), ProductRate(1.0, "")
    row = loss._row(Contestant("greedy", _out_of_memory, 2), views, None, chosen, rate, memory.ResidentMemory())
    assert row == Row(4, 2, "greedy", note="out of memory")
    with pytest.raises(RuntimeError, match="something else"):
        loss._row(Contestant("broken", _broken, 2), views, None, chosen, rate, memory.ResidentMemory())


def test_what_does_not_fit_the_free_memory_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "free_bytes", lambda device: 1e6)
    dense = compared("entropy", 10.0, 2, "fast").contestants[1]
    views = unit_views(1000, 2, torch.float32)
    row = loss._row(dense, views, None, settings(device="cpu"), ProductRate(1.0, ""), memory.ResidentMemory())
    assert row.note == "needs about 0.02 GB"
    assert float64_gradient(dense, views) is None


def test_free_memory_is_known() -> None:
    assert memory.free_bytes(CPU) > 0


def test_at_least_so_many_steps_are_timed() -> None:
    calls: list[int] = []
    took = milliseconds(lambda: calls.append(torch.randn(300, 300).svd()[0].numel()), CPU, repeats=2)
    assert len(calls) >= 3
    assert took.step > 0
    assert took.back_to_back is None


def test_the_products_precision_is_put_back() -> None:
    before = torch.get_float32_matmul_precision()
    with float32_products(tf32=True):
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"k": [1]}, "k must be at least 2, got 1"),
        ({"d": [1]}, "d must be at least 2, got 1"),
        ({"d": []}, "d must be at least one dimension"),
        ({"what": "moco"}, "what must be one of 'entropy', 'er', 'ntxent', got 'moco'"),
        ({"kappa": 0.0}, "kappa must be positive"),
        ({"device": "abacus"}, "device must be 'auto', 'cpu' or 'cuda', got 'abacus'"),
        ({"precision": "slow"}, "precision must be one of"),
        ({"dtype": "int8"}, "dtype must be one of"),
        ({"repeats": 0}, "repeats must be at least 1"),
        ({"dense_limit_gb": -1.0}, "dense_limit_gb must be positive"),
    ],
)
def test_bad_settings_are_refused(wrong: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        settings(**wrong)  # type: ignore[arg-type]


def test_defaults_follow_the_device() -> None:
    assert settings(device="cpu").k == (512, 2048, 8192)
    assert settings(device="cuda:1").k[-1] == 131072
    assert settings(device="cuda").repeats >= 20


def _lines(benchmark: Benchmark, width: int = 100) -> list[str]:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(table.title(benchmark), table.table(benchmark), sep="\n")
    console.print(*table.footnotes(benchmark), sep="\n", markup=False)
    return console.export_text().splitlines()


def test_the_table_says_what_was_measured(measured: Benchmark) -> None:
    text = "\n".join(_lines(measured))
    for words in ("kappa 10", "1 thread;", "needs about 0.18 GB", "float32, 256 x 256 x 256", "4 n^2 d", "entrec[bench]"):
        assert words in text
    assert "in a row" not in text


@pytest.mark.parametrize(("load", "said"), [(0.1, False), (3.0, True), (None, False)])
def test_a_busy_machine_is_said(measured: Benchmark, load: float | None, said: bool) -> None:
    machine = replace(measured.machine, load=load, cores=2)
    assert ("3.0 of 2 cores" in "\n".join(table.footnotes(replace(measured, machine=machine)))) is said


def test_the_table_of_a_gpu_fits_a_hundred_columns(measured: Benchmark) -> None:
    row = Row(131072, 1024, LIGHTLY, 1234.5, 1235.6, 123456.7, 1.9e-3, 0.876)
    rows = [replace(row, contestant=OURS), replace(row, ms=None, note="needs about 1234 GB"), row]
    chosen = replace(measured.settings, device="cuda", k=(131072,))
    lines = _lines(replace(measured, settings=chosen, rows=rows, missing=""))
    for words in ("in a row", "131072", "1024", "123457", "1.9e-03", "87.6%", "TF32", "for scale"):
        assert any(words in line for line in lines)
    assert max(map(len, lines)) <= 100
    assert sum("131072" in line for line in lines) == 3  # a row each: nothing wraps


def test_everything_is_written(measured: Benchmark, tmp_path: Path) -> None:
    write(measured, tmp_path / "new" / "loss.json")
    document = json.loads((tmp_path / "new" / "loss.json").read_text())
    assert set(document) == {"settings", "machine", "product_rate", "rows", "missing"}
    assert document["rows"] == [asdict(row) for row in measured.rows]
    assert document["settings"]["k"] == [64, 1024, 3000]
    assert document["product_rate"]["tflops"] > 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("what", EVERY)
def test_on_a_gpu(what: What) -> None:
    found = loss.run(settings(what=what, k=(300, 4096), d=(64,), device="cuda"))
    for row in found.rows:
        assert row.note == ""
        assert row.ms is not None
        assert row.back_to_back_ms is not None
        assert row.peak_mb is not None
        assert row.gradient_error is not None or row.contestant == LIGHTLY
    assert found.product_rate.of.split(",")[0] in ("float16", "bfloat16")
