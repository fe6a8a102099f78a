"""How many channels images have, where the user says so."""

import dataclasses
import tarfile
from pathlib import Path

import pytest
import torch
from torchvision.transforms.v2.functional import pil_to_tensor

from entrec.data import Files, Held, open_source
from tests.data.pictures import picture, save
from tests.data.test_adapt import PIXELS, Items


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("packed", [False, True])
def test_files_are_decoded_to_the_channels_asked_for(mode: str, channels: int, packed: bool, tmp_path: Path) -> None:
    data = save(tmp_path / "images" / "1.png", mode=mode).parent
    if packed:
        with tarfile.open(tmp_path / "a.tar", "w") as tar:
            tar.add(data, arcname="images")
        data = tmp_path / "a.tar"
    source = open_source(data, channels=channels)
    assert isinstance(source.train, Held)
    wanted = pil_to_tensor(picture(mode=mode).convert("L" if channels == 1 else "RGB"))
    assert torch.equal(source.train.images[0], wanted)
    assert (source.channels, len(source.mean), len(source.std)) == (channels,) * 3


def test_files_that_stay_files_are_decoded_to_the_channels_asked_for(tmp_path: Path) -> None:
    save(tmp_path / "1.png", size=(100, 100))
    source = open_source(tmp_path, channels=1)
    assert isinstance(source.train, Files)
    assert source.train[0][0].shape == (1, 100, 100)
    assert (source.channels, len(source.mean)) == (1, 1)


def test_other_data_have_the_channels_they_have() -> None:
    colour = open_source(Items(PIXELS), channels=3)
    assert open_source(colour, channels=3) is colour
    assert open_source("digits", channels=1).channels == 1
    deep = dataclasses.replace(colour, channels=5)
    assert open_source(deep, channels=5).channels == 5
    for data in (Items(PIXELS), colour, (Items(PIXELS), Items(PIXELS))):
        with pytest.raises(ValueError, match="channels=1, but items has images of 3"):
            open_source(data, channels=1)
    with pytest.raises(ValueError, match="channels=3, but digits has images of 1"):
        open_source("digits", channels=3)


def test_files_have_one_channel_or_three(tmp_path: Path) -> None:
    save(tmp_path / "1.png")
    with pytest.raises(ValueError, match=r"channels must be 1 \(grey\) or 3 \(colour\) for images in files, got 4"):
        open_source(tmp_path, channels=4)
    with pytest.raises(ValueError, match="channels must be at least 1, got 0"):
        open_source(tmp_path, channels=0)
