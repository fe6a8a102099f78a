"""What paths say: splits, classes, and when a folder called train is neither."""

import pytest

from entrec.data.layout import layout


def places(names: list[str]) -> tuple[list[int], list[int] | None]:
    found = layout(names)
    return found.train.places, None if found.test is None else found.test.places


@pytest.mark.parametrize(
    ("names", "labels", "classes"),
    [
        (["a/1.png", "b/2.png"], None, ("a", "b")),
        (["a/1.png", "b/2.png"], False, ()),
        (["a/1.png", "a/2.png"], None, ()),  # one folder says nothing
        (["a/1.png", "a/2.png"], True, ("a",)),
        (["a/1.png", "b/2.png", "3.png"], None, ()),  # loose images
        (["1.png", "2.png"], None, ()),
        (["train/1.png", "test/2.png"], None, ()),  # splits are not classes
        (["test/1.png", "val/2.png"], None, ("test", "val")),  # without train, they are
    ],
)
def test_labels_are_taken_where_folders_say_them(names: list[str], labels: bool | None, classes: tuple[str, ...]) -> None:
    found = layout(names, labels)
    assert found.classes == classes
    assert bool((found.train.labels >= 0).all()) == bool(classes)


@pytest.mark.parametrize("names", [["1.png"], ["a/1.png", "2.png"]])
def test_labels_that_are_not_there_are_an_error(names: list[str]) -> None:
    with pytest.raises(ValueError, match="labels=True wants one sub-folder"):
        layout(names, labels=True)


@pytest.mark.parametrize("train", ["train", "training", "Train"])
@pytest.mark.parametrize("held_out", ["test", "testing", "val", "valid", "validation", "VAL"])
def test_splits_have_several_names(train: str, held_out: str) -> None:
    assert places([f"{held_out}/a.png", f"{train}/b.png", f"{train}/c.png"]) == ([1, 2], [0])


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["train/1.png"], ([0], None)),
        (["0.png", "train/1.png"], ([1], None)),  # a file beside the splits
        (["train/1.png", "training/2.png"], ([0, 1], None)),  # two words for one thing
        (["test/0.png", "train/1.png", "val/2.png"], ([1], [0])),  # test before val
        (["extra/0.png", "test/1.png", "train/2.png"], ([2], [1])),  # a held-out split makes train one
        (["bus/0.png", "train/1.png"], ([0, 1], None)),
        (["test/0.png", "val/1.png"], ([0, 1], None)),
        (["a/train/0.png", "test/1.png"], ([0, 1], None)),  # not at the top
    ],
)
def test_train_is_a_split_beside_splits(names: list[str], splits: tuple[list[int], list[int] | None]) -> None:
    assert places(names) == splits


def test_a_train_among_vehicles_is_a_class() -> None:
    found = layout(["bus/1.png", "car/2.png", "train/3.png"])
    assert found.classes == ("bus", "car", "train")
    assert found.train.labels.tolist() == [0, 1, 2]
    assert (found.test, found.notices) == (None, ())


OUTSIDE = [
    ["test/1.jpg", "train/cat/2.jpg", "train/dog/3.jpg"],  # flat
    ["test/cat/0.jpg", "test/cow/1.jpg", "train/cat/2.jpg", "train/dog/3.jpg"],  # a class that is not trained on
    ["test/2.jpg", "train/2.jpg/2.jpg", "train/dog/3.jpg"],  # a file that is called as a class is
]


@pytest.mark.parametrize("names", OUTSIDE)
def test_held_out_images_outside_the_classes_are_taken_without_labels(names: list[str]) -> None:
    found = layout(names)
    assert found.test is not None
    assert set(found.test.labels.tolist()) == {-1}
    assert found.train.labels.tolist() == [0, 1]
    (notice,) = found.notices
    assert notice.startswith("held-out images are not in folders of the training classes (1 of ")
    assert "such as test/" in notice
    assert notice.endswith("taken without labels")


@pytest.mark.parametrize("names", OUTSIDE)
def test_insisting_on_labels_makes_them_an_error_with_a_way_out(names: list[str]) -> None:
    wanted = r"labels=True, but held-out images are not in folders of the training classes \(1 of .*or say labels=False"
    with pytest.raises(ValueError, match=wanted):
        layout(names, labels=True)
    found = layout(names, labels=False)
    assert found.test is not None
    assert (found.classes, found.notices, set(found.test.labels.tolist())) == ((), (), {-1})


def test_held_out_images_without_classes_to_be_in_need_no_notice() -> None:
    assert layout(["test/a/1.jpg", "train/2.jpg"]).notices == ()


@pytest.mark.parametrize(("folders", "taken"), [(5000, True), (5001, False)])
def test_folders_beyond_number_are_classes_only_by_insistence(folders: int, taken: bool) -> None:
    names = [f"{i:04}/1.png" for i in range(folders)]
    found = layout(names)
    assert len(found.classes) == (folders if taken else 0)
    assert bool((found.train.labels >= 0).all()) is taken
    assert len(found.notices) == (0 if taken else 1)
    if not taken:
        assert found.notices[0].startswith("5001 sub-folders are too many to be taken for classes")
    insisted = layout(names, labels=True)
    assert (len(insisted.classes), insisted.notices) == (folders, ())
