import copy
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset, TensorDataset

from entrec.data.files import CorruptImage, Files
from entrec.data.held import Held
from entrec.evaluation import Features, evaluating, extract, labelled
from entrec.views import Augment, recipe
from entrec.views.augment import Plain


class Listed(Dataset[tuple[Any, int]]):
    def __init__(self, images: list[Any], paths: list[str] | None = None) -> None:
        self.images = images
        if paths is not None:
            self.paths = paths

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[Any, int]:
        return self.images[i], i % 3


def images(n: int = 11, size: int = 8, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=generator)


def prepare(x: Tensor) -> Tensor:
    return nn.functional.interpolate(x.float() / 255, size=8)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 5))


def test_rows_are_the_modules_outputs_in_the_data_sets_order() -> None:
    module, x = network(), images()
    labels = torch.arange(11) % 4
    wanted = copy.deepcopy(module).eval()(prepare(x)).detach()
    held, read = Held(x, labels), TensorDataset(x, labels)
    for dataset in (held, read):
        for batch_size in (1, 4, 256):
            features = extract(module, dataset, prepare, batch_size=batch_size)
            torch.testing.assert_close(features.values, wanted)
            assert torch.equal(features.labels, labels)
            assert features.values.dtype == torch.float32
            assert features.labels.dtype == torch.int64
            assert features.skipped == ()
            assert features.places is not None
            assert torch.equal(features.places, torch.arange(11))


def test_workers_keep_the_order() -> None:
    module, dataset = network(), Listed(list(images()))
    wanted = extract(module, dataset, prepare, batch_size=3)
    found = extract(module, dataset, prepare, batch_size=3, workers=2)
    assert torch.equal(wanted.values, found.values)
    assert torch.equal(wanted.labels, found.labels)


def test_the_module_is_left_as_it_was() -> None:
    module = network().train()
    module[1].eval()  # a mixture, as when a part is frozen
    before = copy.deepcopy(module.state_dict())
    extract(module, TensorDataset(images(), torch.zeros(11)), prepare, batch_size=4)
    assert [part.training for part in module] == [True, False, True, True, True]
    assert module.training
    assert all(torch.equal(x, module.state_dict()[name]) for name, x in before.items())
    assert all(p.requires_grad and p.grad is None for p in module.parameters())


def test_the_flags_come_back_after_an_error() -> None:
    module = network().train()
    module[2].eval()

    def fails(x: Tensor) -> Tensor:
        raise RuntimeError("no view")

    with pytest.raises(RuntimeError, match="no view"):
        extract(module, TensorDataset(images(), torch.zeros(11)), fails)
    assert [part.training for part in module] == [True, True, False, True, True]


def test_evaluating_several_modules() -> None:
    first, second = network(), network().eval()
    with evaluating(first, second):
        assert not first.training
        assert not second.training
    assert first.training
    assert not second.training


def test_features_can_be_trained_on() -> None:
    features = extract(network(), TensorDataset(images(), torch.zeros(11)), prepare)
    head = nn.Linear(5, 2)
    head(features.values).sum().backward()  # refused where the features are inference tensors
    assert head.weight.grad is not None


def test_sizes_may_differ() -> None:
    mixed = [images(1, size)[0] for size in (8, 16, 12, 8)]
    module = network()
    features = extract(module, Listed(mixed), prepare)
    one_by_one = torch.cat([extract(module, Listed([x]), prepare).values for x in mixed])
    torch.testing.assert_close(features.values, one_by_one)


@pytest.mark.parametrize("named", [True, False])
def test_what_cannot_be_read_is_skipped_and_named(named: bool) -> None:
    x: list[Any] = list(images(5))
    x[1] = x[4] = None
    paths = [f"{i}.png" for i in range(5)] if named else None
    features = extract(network(), Listed(x, paths), prepare, batch_size=2)
    assert features.skipped == (("1.png", "4.png") if named else ("1", "4"))
    assert features.labels.tolist() == [0, 2, 0]
    assert features.places is not None
    assert features.places.tolist() == [0, 2, 3]
    assert features.places.dtype == torch.int64
    kept = extract(network(), Listed([x[0], x[2], x[3]]), prepare)
    torch.testing.assert_close(features.values, kept.values)


def test_corrupt_files_are_skipped_and_named_unless_that_is_strict(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{i}.png") for i in range(3)]
    for i in (0, 2):
        Image.fromarray(images(1, seed=i)[0].permute(1, 2, 0).numpy()).save(paths[i])
    Path(paths[1]).write_bytes(b"no image")
    labels, wanted = torch.tensor([5, 6, 7]), torch.cat([images(1, seed=0), images(1, seed=2)])
    for dataset in (Files(paths, labels), Subset(Files(paths, labels), [0, 1, 2])):
        features = extract(network(), dataset, prepare)
        assert features.skipped == (f"{paths[1]}: it is no image of a kind that Pillow knows",)
        assert features.labels.tolist() == [5, 7]
        assert features.places is not None
        assert features.places.tolist() == [0, 2]
        torch.testing.assert_close(features.values, network().eval()(prepare(wanted)).detach())
    with pytest.raises(CorruptImage, match=r"1\.png"):
        extract(network(), Files(paths, labels, strict=True), prepare)


def test_what_a_set_in_memory_left_out_is_named() -> None:
    assert extract(network(), Held(images(2), skipped=("bad.png",)), prepare).skipped == ("bad.png",)


def test_half_precision_outputs_become_float32() -> None:
    module = network().bfloat16()
    values = extract(module, Held(images()), lambda x: prepare(x).bfloat16()).values
    assert values.dtype == torch.float32


def test_what_is_refused() -> None:
    module = network()
    with pytest.raises(ValueError, match="at least one image, got none"):
        extract(module, Listed([]), prepare)
    with pytest.raises(ValueError, match="but none of its 2 can"):
        extract(module, Listed([None, None]), prepare)
    with pytest.raises(TypeError, match=r"shape \(C, H, W\), got tuple: of several views, choose one"):
        extract(module, Listed([(images(1)[0], images(1)[0])]), prepare)
    with pytest.raises(ValueError, match=r"the module's output must have shape \(k, d\), got \(2, 4, 6, 6\)"):
        extract(module[0], Listed(list(images(2))), prepare)
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        extract(module, Listed(list(images(2))), prepare, batch_size=0)


def test_skipped_is_empty_by_default() -> None:
    assert Features(torch.zeros(1, 1), torch.zeros(1)).skipped == ()
    assert Features(torch.zeros(1, 1), torch.zeros(1)).places is None


class Sizes:
    """How many images `prepare` is given at a time."""

    def __init__(self) -> None:
        self.given: list[int] = []

    def __call__(self, x: Tensor) -> Tensor:
        self.given.append(len(x))
        return prepare(x)


def test_what_is_read_is_prepared_one_image_at_a_time_and_what_is_in_memory_in_batches() -> None:
    x, labels = images(11, 32), torch.arange(11)
    one, many = Sizes(), Sizes()
    extract(network(), TensorDataset(x, labels), one, batch_size=4)
    extract(network(), Held(x, labels), many, batch_size=4)
    assert one.given == [1] * 11
    assert many.given == [4, 4, 3]


class Photos(Dataset[tuple[Tensor, int]]):
    """Images that are made when they are read, and how many of them there are at most at a time."""

    def __init__(self) -> None:
        self.alive = self.most = 0

    def __len__(self) -> int:
        return 20

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        image = images(1, 64, seed=i)[0].clone()
        self.alive += 1
        self.most = max(self.most, self.alive)
        weakref.finalize(image, self._gone)
        return image, 0

    def _gone(self) -> None:
        self.alive -= 1


def test_few_images_of_full_size_exist_at_a_time() -> None:
    photos = Photos()
    extract(network(), photos, prepare, batch_size=10)
    assert photos.most <= 2
    assert photos.alive == 0


@pytest.mark.parametrize("size", [8, 96])
@pytest.mark.parametrize("workers", [0, 2])
def test_features_are_bit_for_bit_those_of_images_prepared_together(size: int, workers: int) -> None:
    x, labels = images(9, 20), torch.arange(9)
    plain = Plain(Augment(recipe("none", size, 1), (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)), size)
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(2), nn.Flatten()).eval()
    with torch.no_grad():
        wanted = torch.cat([module(plain(part)) for part in x.split(4)])
    found = extract(module, TensorDataset(x, labels), plain, batch_size=4, workers=workers)
    assert torch.equal(found.values, wanted)
    assert torch.equal(extract(module, Held(x, labels), plain, batch_size=4).values, wanted)


def test_workers_take_what_can_be_prepared_with_a_module() -> None:
    learnt = nn.Conv2d(3, 3, 1)  # whose output would carry a gradient, which no process may hand to another
    found = extract(nn.Flatten(), Listed(list(images(4))), lambda x: learnt(x / 255), workers=1)
    assert found.values.shape == (4, 192)


def test_values_stay_where_they_were_computed_if_asked() -> None:
    module = network().to("meta")
    found = extract(module, Held(images()), lambda x: prepare(x), device="meta", keep_on_device=True)
    assert found.values.device.type == "meta"
    assert found.labels.device.type == "cpu"


def test_labelled_rows() -> None:
    features = Features(torch.arange(8.0).reshape(4, 2), torch.tensor([-1, 3, 0, -1]), ("bad.png",), torch.tensor([0, 2, 4, 6]))
    found = labelled(features)
    assert found.values.tolist() == [[2, 3], [4, 5]]
    assert found.labels.tolist() == [3, 0]
    assert found.skipped == ("bad.png",)
    assert found.places is not None
    assert found.places.tolist() == [2, 4]
    assert labelled(found) is found
    assert labelled(features._replace(places=None)).places is None
    with pytest.raises(ValueError, match=r"test must have labels, but none of its 4 rows has one"):
        labelled(features._replace(labels=torch.full((4,), -1)), "test")
