"""The loader: the same batches from any number of workers, from any batch on, others in place of files that are broken."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as Picture
from torch import Tensor
from torch.utils.data import Dataset

from entrec.data import Batch, Batches, CorruptImage, Files, Held, Image, NothingReadable, in_order, loader
from tests.data.pictures import save, truncate


def held(n: int = 20) -> Held:
    return Held(torch.randint(0, 256, (n, 3, 8, 6), dtype=torch.uint8), torch.arange(n) % 3)


def two_crops(image: Image, generator: torch.Generator) -> tuple[Tensor, ...]:
    assert isinstance(image, Tensor)
    places = [int(torch.randint(0, 3, (), generator=generator)) for _ in range(2)]
    return tuple(image[:, place : place + 4, :4] for place in places)


class Noisy(Dataset[tuple[Tensor, int]]):
    """Every global generator has its say in an item."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        drawn = [random.randrange(256), int(np.random.randint(256)), int(torch.randint(256, ()))]
        return torch.tensor(drawn, dtype=torch.uint8)[:, None, None], index


class Cameras(Dataset[tuple[tuple[Tensor, Tensor], int]]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[tuple[Tensor, Tensor], int]:
        return (torch.full((3, 4, 4), index, dtype=torch.uint8), torch.full((1, 2, 2), 100 + index, dtype=torch.uint8)), -1


def same(first: list[Batch], second: list[Batch]) -> bool:
    def tensors(batch: Batch) -> list[Tensor]:
        return [*(batch.images if isinstance(batch.images, tuple) else (batch.images,)), batch.labels, batch.index]

    return len(first) == len(second) and all(
        torch.equal(a, b) for x, y in zip(first, second, strict=True) for a, b in zip(tensors(x), tensors(y), strict=True)
    )


def test_a_batch_holds_the_images_it_says() -> None:
    data = held()
    for batch in loader(data, Batches(20, 6, 0, drop_last=False)):
        assert isinstance(batch.images, Tensor)
        assert torch.equal(batch.images, data.images[batch.index])
        assert torch.equal(batch.labels, data.labels[batch.index])
        assert batch.skipped == ()


def test_evaluation_sees_all_in_order() -> None:
    data = held()
    assert torch.equal(torch.cat([batch.index for batch in loader(data, in_order(20, 6))]), torch.arange(20))


@pytest.mark.parametrize("data", [held(), Noisy()])
def test_workers_change_nothing(data: Dataset[Any]) -> None:
    n = len(data)  # type: ignore[arg-type]
    crop = two_crops if isinstance(data, Held) else None
    alone = list(loader(data, Batches(n, 3, 1), crop=crop))
    torch.manual_seed(99)
    random.seed(99)
    assert same(alone, list(loader(data, Batches(n, 3, 1), crop=crop, workers=2)))


def test_epochs_change_crops_and_resuming_does_not() -> None:
    data, batches = held(), Batches(20, 4, 1)
    loaded = loader(data, batches, crop=two_crops)
    batches.set_epoch(2)
    whole = list(loaded)
    batches.set_start(3)
    assert same(list(loaded), whole[3:])
    batches.set_epoch(3)
    assert not same(list(loaded), whole)


def test_crops_come_as_one_tensor_per_view() -> None:
    batch = next(iter(loader(held(), Batches(20, 5, 0), crop=two_crops)))
    assert isinstance(batch.images, tuple)
    assert [tuple(view.shape) for view in batch.images] == [(5, 3, 4, 4)] * 2


def test_samples_of_several_views_stay_together() -> None:
    batch = next(iter(loader(Cameras(), Batches(6, 4, 0))))
    assert isinstance(batch.images, tuple)
    first, second = batch.images
    assert first.shape == (4, 3, 4, 4)
    assert second.shape == (4, 1, 2, 2)
    assert torch.equal(first[:, 0, 0, 0] + 100, second[:, 0, 0, 0])
    assert torch.equal(first[:, 0, 0, 0].long(), batch.index)


def test_the_callers_generators_are_left_alone() -> None:
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]
    list(loader(Noisy(), in_order(12, 4)))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.random.get_state()[1].tolist() == states[2]  # type: ignore[index]


CUT, TEXT = "image file is truncated (OSError)", "it is no image of a kind that Pillow knows"


@pytest.fixture
def broken(tmp_path: Path) -> Files:
    paths = [save(tmp_path / f"{i}.png", i, size=(40, 40)) for i in range(6)]
    truncate(paths[1])
    paths[4].write_text("not an image")
    return Files([str(path) for path in paths], torch.arange(6))


@pytest.mark.parametrize("workers", [0, 1])
def test_the_next_image_stands_in_for_a_broken_file_which_is_named(broken: Files, workers: int) -> None:
    first, second = loader(broken, in_order(6, 3), workers=workers)
    assert first.index.tolist() == first.labels.tolist() == [0, 3, 2]  # 2 is in the batch already
    assert second.index.tolist() == [3, 0, 5]  # round the end
    assert isinstance(first.images, Tensor)
    assert torch.equal(first.images, torch.stack([broken[place][0] for place in (0, 3, 2)]))
    assert (first.skipped, second.skipped) == ((f"{broken.paths[1]}: {CUT}",), (f"{broken.paths[4]}: {TEXT}",))


def test_a_substitute_that_is_broken_is_named_too_and_passed_over(broken: Files) -> None:
    Path(broken.paths[2]).write_text("not an image")
    (batch,) = loader(broken, [[(1, 7), (0, 8)]])
    assert batch.index.tolist() == [3, 0]
    assert batch.skipped == (f"{broken.paths[1]}: {CUT}", f"{broken.paths[2]}: {TEXT}")


def test_no_image_stands_in_twice(broken: Files) -> None:
    Path(broken.paths[0]).write_text("not an image")
    (batch,) = loader(broken, [[(0, 7), (1, 8), (4, 9)]])
    assert batch.index.tolist() == [2, 3, 5]
    assert batch.skipped == tuple(f"{broken.paths[i]}: {why}" for i, why in ((0, TEXT), (1, CUT), (4, TEXT)))


def test_a_broken_file_is_tried_once_in_a_batch(broken: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    decoded = Files.decoded

    def noted(self: Files, index: int) -> Tensor:
        tried.append(index)
        return decoded(self, index)

    monkeypatch.setattr(Files, "decoded", noted)
    (batch,) = loader(broken, [[(1, 7), (1, 8)]])
    assert batch.index.tolist() == [2, 3]
    assert tried == [1, 2, 3]


def test_a_batch_of_the_whole_data_set_keeps_its_size(broken: Files) -> None:
    (batch,) = loader(broken, in_order(6, 6))
    assert batch.index.tolist() == [0, 2, 2, 3, 5, 5]
    assert batch.skipped == (f"{broken.paths[1]}: {CUT}", f"{broken.paths[4]}: {TEXT}")


def test_a_substitute_is_cropped_by_the_draw_it_stands_in_for(broken: Files) -> None:
    stand_ins, own = (list(loader(broken, [[(place, seed)] for seed in range(9)], crop=two_crops)) for place in (1, 2))
    assert same(stand_ins, own)
    assert not same(stand_ins[1:], own[:-1])


def test_ranks_have_equal_batches_whatever_is_broken(broken: Files) -> None:
    ranks = [list(loader(broken, Batches(6, 3, 0, rank, 2))) for rank in range(2)]
    assert [len(batch.index) for batches in ranks for batch in batches] == [3, 3]


@pytest.mark.parametrize("workers", [0, 1])
def test_strict_files_stop_the_run_with_one_line(broken: Files, workers: int) -> None:
    broken.strict = True
    with pytest.raises(CorruptImage, match=r"^cannot decode the image .*1\.png: .*$") as caught:
        list(loader(broken, in_order(6, 3), workers=workers))
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(("n", "tried"), [(4, 4), (150, 100)])
def test_a_disk_that_is_gone_stops_the_run_with_one_line(n: int, tried: int, workers: int, tmp_path: Path) -> None:
    files = Files([str(tmp_path / f"{i}.png") for i in range(n)])
    named = ", ".join(files.paths[:3])
    with pytest.raises(NothingReadable) as caught:
        list(loader(files, in_order(n, 1), workers=workers))
    wanted = f"none of {tried} images in a row could be decoded ({named}, ...): is the disk there?"
    assert str(caught.value) == f"{wanted} Of the first: No such file or directory"


@pytest.mark.parametrize("workers", [0, 1])
def test_files_of_a_kind_that_cannot_be_used_are_no_fault_of_the_disk(workers: int, tmp_path: Path) -> None:
    files = Files([str(tmp_path / f"{i}.tif") for i in range(3)])
    for path in files.paths:
        Picture.new("F", (12, 10), 2.5).save(path)
    with pytest.raises(NothingReadable) as caught:
        list(loader(files, in_order(3, 3), workers=workers))
    assert str(caught.value) == (
        f"none of 3 images in a row could be decoded ({', '.join(files.paths)}). Of the first: floating-point pixels are "
        "read where all are within 0 and 1, and these go from 2.5 to 2.5: scale all images alike, or save them with 8 or 16 "
        "bits"
    )


def test_ninety_nine_broken_files_in_a_row_are_passed_over(tmp_path: Path) -> None:
    good = str(save(tmp_path / "good.png"))
    files = Files([str(tmp_path / f"{i}.png") for i in range(99)] + [good])
    (batch,) = loader(files, [[(0, 0)]])
    assert batch.index.tolist() == [99]
    assert len(batch.skipped) == 99


def test_images_of_several_sizes_must_be_cropped(tmp_path: Path) -> None:
    files = Files([str(save(tmp_path / "a.png", size=(8, 8))), str(save(tmp_path / "b.png", size=(9, 8)))])
    with pytest.raises(ValueError, match="must have one size: crop them"):
        list(loader(files, in_order(2, 2)))
    batch = next(iter(loader(files, in_order(2, 2), crop=two_crops)))
    assert len(batch.images) == 2


def test_held_refuses_what_is_not_images() -> None:
    with pytest.raises(ValueError, match=r"images must be uint8 of shape \(N, C, H, W\), got torch.float32"):
        Held(torch.zeros(2, 3, 4, 4))
    with pytest.raises(ValueError, match=r"labels must be int64 of shape \(2,\)"):
        Held(torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.zeros(3, dtype=torch.int64))
    assert Held(torch.zeros(2, 3, 4, 4, dtype=torch.uint8)).labels.tolist() == [-1, -1]
