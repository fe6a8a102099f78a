import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from entrec.evaluation import Features, few_labels, linear, linear_probe
from entrec.evaluation.few_labels import _balanced
from entrec.evaluation.linear import GRID, fit, standardised
from tests.evaluation.test_knn import blobs

TRAIN, TEST = blobs(600, 4, 12, 0, spread=2.0), blobs(500, 4, 12, 1, spread=2.0)


@pytest.mark.parametrize("l2", [1e-1, 1e-3, 1e-5])
def test_equals_scikit_learn(l2: float) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    x, x_test = standardised(TRAIN.values, TEST.values)
    reference = linear_model.LogisticRegression(C=1 / (l2 * len(x)), tol=1e-8, max_iter=10_000)
    reference.fit(x.numpy(), TRAIN.labels.numpy())
    found = fit(x, TRAIN.labels, 4, l2)
    torch.testing.assert_close(found.weight, torch.as_tensor(reference.coef_), rtol=1e-3, atol=1e-3)
    bias = torch.as_tensor(reference.intercept_)
    torch.testing.assert_close(found.bias - found.bias.mean(), bias - bias.mean(), rtol=1e-3, atol=1e-3)
    wanted = reference.score(x_test.numpy(), TEST.labels.numpy())
    assert linear_probe(TRAIN, TEST, l2=l2).accuracy == pytest.approx(wanted, abs=0.003)


def test_with_fewer_rows_than_columns_it_equals_scikit_learn_too() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    x = torch.randn(15, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(15) % 3
    reference = linear_model.LogisticRegression(C=1 / (0.01 * 15), tol=1e-8, max_iter=10_000).fit(x.numpy(), labels.numpy())
    found = fit(x, labels, 3, 0.01)
    torch.testing.assert_close(found.weight, torch.as_tensor(reference.coef_), rtol=1e-3, atol=1e-3)


def test_at_the_minimum_the_gradient_is_zero() -> None:
    x = standardised(TRAIN.values)[0]
    found = fit(x, TRAIN.labels, 4, 1e-3)
    probability = (x @ found.weight.T + found.bias).softmax(dim=1)
    residual = probability - torch.nn.functional.one_hot(TRAIN.labels, 4)
    assert float((residual.T @ x / len(x) + 1e-3 * found.weight).abs().max()) < 1e-4
    assert float(residual.mean(dim=0).abs().max()) < 1e-4


def test_a_warm_start_ends_at_the_same_place() -> None:
    x = standardised(TRAIN.values)[0]
    cold = fit(x, TRAIN.labels, 4, 1e-3)
    warm = fit(x, TRAIN.labels, 4, 1e-3, start=fit(x, TRAIN.labels, 4, 1e-1))
    torch.testing.assert_close(warm.weight, cold.weight, rtol=1e-3, atol=1e-3)


def test_standardised_with_the_train_sets_numbers() -> None:
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    scaler = preprocessing.StandardScaler().fit(TRAIN.values.double().numpy())
    found = standardised(TRAIN.values, TEST.values)
    for x, y in zip(found, (TRAIN.values, TEST.values), strict=True):
        torch.testing.assert_close(x, torch.as_tensor(scaler.transform(y.double().numpy())))


def test_a_few_rows_at_a_time_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = standardised(TRAIN.values, TEST.values)
    monkeypatch.setattr(linear, "_AT_ONCE", 12 * 7)  # 7 rows, which do not divide 600
    for found, wanted in zip(standardised(TRAIN.values, TEST.values), whole, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


class Doubles(TorchDispatchMode):
    """The most elements that any tensor of float64 has while this is on."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        found = [x.numel() for x in tree_leaves(result) if isinstance(x, Tensor) and x.dtype == torch.float64]
        self.elements = max(self.elements, *found, 0)
        return result


def test_large_sets_have_no_copy_in_double_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "_AT_ONCE", 2**12)
    x = torch.rand(2**14, 17)
    with Doubles() as largest:  # type: ignore[no-untyped-call]
        (found,) = standardised(x)
    assert found.dtype == torch.float32
    assert 0 < largest.elements <= 2**12


def test_constant_columns_become_zero() -> None:
    x = torch.cat([torch.randn(50, 1), torch.full((50, 1), 0.1), torch.zeros(50, 1), torch.full((50, 1), 1e4)], dim=1)
    y = torch.cat([torch.randn(9, 1), torch.randn(9, 3) * 100], dim=1)
    train, test = standardised(x, y)
    assert (train[:, 1:] == 0).all()
    assert (test[:, 1:] == 0).all()
    assert linear_probe(Features(x, (x[:, 0] > 0).long()), Features(x, (x[:, 0] > 0).long())).accuracy > 0.9


def test_shift_and_scale_of_columns_change_nothing() -> None:
    scale, shift = torch.logspace(-3, 3, 12), torch.linspace(-5, 5, 12)
    moved = [x._replace(values=x.values * scale + shift * scale) for x in (TRAIN, TEST)]
    assert linear_probe(*moved).accuracy == pytest.approx(linear_probe(TRAIN, TEST).accuracy, abs=0.003)


def test_the_penalty_is_chosen_without_the_test_set() -> None:
    probe = linear_probe(TRAIN, TEST)
    assert probe.l2 in GRID
    assert probe.l2 == linear_probe(TRAIN, TEST._replace(labels=TEST.labels.flip(0))).l2
    given = linear_probe(TRAIN, TEST, l2=probe.l2)
    assert given.accuracy == probe.accuracy
    assert "chosen on a tenth" in probe.protocol
    assert f"L2 {probe.l2:g} (given)" in given.protocol


def test_noise_asks_for_the_strongest_penalty_there_is_use_for() -> None:
    """Many useless columns: an unpenalised fit separates the train set and does badly."""
    generator = torch.Generator().manual_seed(0)
    noisy = [
        x._replace(values=torch.cat([x.values, torch.randn(len(x.values), 300, generator=generator)], dim=1))
        for x in (TRAIN, TEST)
    ]
    chosen = linear_probe(*noisy)
    assert chosen.l2 >= 1e-2
    assert chosen.accuracy > linear_probe(*noisy, l2=1e-5).accuracy


def test_it_is_deterministic_and_leaves_its_input_alone() -> None:
    values = TRAIN.values.clone()
    state = torch.random.get_rng_state()
    first = linear_probe(TRAIN, TEST)
    assert torch.equal(state, torch.random.get_rng_state())
    torch.rand(3)
    assert linear_probe(TRAIN, TEST) == first
    assert torch.equal(values, TRAIN.values)


def test_it_fits_where_gradients_are_off() -> None:
    with torch.no_grad():
        assert linear_probe(TRAIN, TEST, l2=0.01) == linear_probe(TRAIN, TEST, l2=0.01)


def test_standard_error_is_binomial() -> None:
    probe = linear_probe(TRAIN, TEST, l2=1e-2)
    assert probe.standard_error == pytest.approx(math.sqrt(probe.accuracy * (1 - probe.accuracy) / 500))


def test_large_sets_run_in_single_precision() -> None:
    assert standardised(torch.rand(2**12, 65))[0].dtype == torch.float32
    assert standardised(TRAIN.values)[0].dtype == torch.float64
    x, x_test = (x.float() for x in standardised(TRAIN.values, TEST.values))
    single = fit(x, TRAIN.labels, 4, 1e-3).accuracy(x_test, TEST.labels)
    assert single == pytest.approx(linear_probe(TRAIN, TEST, l2=1e-3).accuracy, abs=0.003)


def test_without_a_penalty_separable_data_stay_finite() -> None:
    x = torch.arange(40.0)[:, None]
    assert linear_probe(Features(x, (x[:, 0] > 20).long()), Features(x, (x[:, 0] > 20).long()), l2=0.0).accuracy == 1


def test_few_labels_are_balanced_and_differ_between_draws() -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = (_balanced(TRAIN.labels, 5, generator) for _ in range(2))
    for rows in (first, second):
        assert TRAIN.labels[rows].bincount().tolist() == [5, 5, 5, 5]
        assert len(rows.unique()) == 20
    assert set(first.tolist()) != set(second.tolist())


def test_more_labels_do_better_and_all_of_them_do_as_the_probe() -> None:
    one, ten, many = (few_labels(TRAIN, TEST, per_class, draws=8).mean for per_class in (1, 10, 100))
    assert one < ten < many
    balanced = torch.cat([(TRAIN.labels == c).nonzero()[:100, 0] for c in range(4)])
    train = Features(TRAIN.values[balanced], TRAIN.labels[balanced])
    everything = few_labels(train, TEST, 100, draws=2)
    assert everything.mean == pytest.approx(linear_probe(train, TEST, l2=0.01).accuracy, abs=0.003)
    assert everything.standard_error == pytest.approx(0, abs=0.003)


def test_few_labels_with_no_signal_is_at_chance() -> None:
    generator = torch.Generator().manual_seed(0)
    train, test = (Features(torch.randn(400, 8, generator=generator), torch.arange(400) % 4) for _ in range(2))
    scores = few_labels(train, test, 5)
    assert scores.mean == pytest.approx(0.25, abs=0.04)
    assert 0 < scores.standard_error < 0.02


def test_few_labels_words_and_seeds() -> None:
    scores = few_labels(TRAIN, TEST, 2, draws=3)
    assert scores == few_labels(TRAIN, TEST, 2, draws=3)
    assert scores.mean != few_labels(TRAIN, TEST, 2, draws=3, seed=1).mean
    assert "labels per class: 2, L2 0.01, mean of 3 draws" in scores.protocol


def test_what_is_refused() -> None:
    unlabelled = TEST._replace(labels=torch.full((500,), -1))
    for call in (lambda: linear_probe(TRAIN, unlabelled), lambda: few_labels(TRAIN, unlabelled, 1)):
        with pytest.raises(ValueError, match=r"test.labels must all be 0 or more, but 500 of 500 are not"):
            call()
    with pytest.raises(ValueError, match="l2 must be at least 0 and finite, got -1"):
        linear_probe(TRAIN, TEST, l2=-1)
    with pytest.raises(ValueError, match="at least 2 rows to choose l2"):
        linear_probe(Features(TRAIN.values[:1], TRAIN.labels[:1]), TEST)
    scarce = Features(TRAIN.values[:21], torch.tensor([0] * 10 + [1] * 10 + [2]))
    with pytest.raises(ValueError, match="got 3: class 2 has 1"):
        few_labels(scarce, TEST, 3)
    with pytest.raises(ValueError, match="draws must be at least 2, got 1"):
        few_labels(TRAIN, TEST, 1, draws=1)
