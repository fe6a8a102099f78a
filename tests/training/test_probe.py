"""The classifier that learns along."""

import math

import torch

from entrec.training.probe import OnlineProbe

WIDTH, CLASSES = 6, 4


def features(k: int = 32, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(k) % CLASSES
    return 3 * torch.eye(WIDTH)[labels] + torch.randn(k, WIDTH, generator=generator), labels


def test_without_weights_every_class_is_as_likely() -> None:
    probe = OnlineProbe(WIDTH, CLASSES)
    torch.nn.init.zeros_(probe.classify.weight)
    torch.nn.init.zeros_(probe.classify.bias)
    loss, top1 = probe(*features())
    assert math.isclose(float(loss.detach()), math.log(CLASSES), rel_tol=1e-6)
    assert float(top1) == 1 / CLASSES  # of equal logits the first wins


def test_no_gradient_reaches_the_features() -> None:
    x, labels = features()
    x.requires_grad_()
    loss, top1 = OnlineProbe(WIDTH, CLASSES)(x, labels)
    loss.backward()
    assert x.grad is None
    assert not top1.requires_grad


def test_rows_without_a_label_do_not_count() -> None:
    x, labels = features()
    labels[20:] = -1
    probe = OnlineProbe(WIDTH, CLASSES)
    loss, top1 = probe(x, labels)
    with torch.no_grad():
        logits = probe.classify(probe.normalise(x))[:20]
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(logits, labels[:20]))
    torch.testing.assert_close(top1, (logits.argmax(1) == labels[:20]).float().mean())


def test_a_batch_without_any_label_teaches_nothing() -> None:
    x, labels = features()
    probe = OnlineProbe(WIDTH, CLASSES)
    before = probe.classify.weight.detach().clone()
    optimizer = probe.optimizer()
    loss, top1 = probe(x, torch.full_like(labels, -1))
    loss.backward()
    optimizer.step()
    assert (float(loss.detach()), float(top1)) == (0.0, 0.0)
    assert torch.equal(probe.classify.weight, before)


def test_it_learns_classes_that_are_apart() -> None:
    probe = OnlineProbe(WIDTH, CLASSES)
    optimizer = probe.optimizer()
    top1 = torch.tensor(0.0)
    for seed in range(300):
        loss, top1 = probe(*features(seed=seed))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(top1) > 0.9


def test_the_scale_of_the_features_does_not_matter() -> None:
    x, labels = features()
    probe = OnlineProbe(WIDTH, CLASSES)
    loss, _ = probe(x, labels)
    scaled, _ = probe(1e3 * x + 7, labels)
    torch.testing.assert_close(loss, scaled, rtol=1e-3, atol=0.0)
