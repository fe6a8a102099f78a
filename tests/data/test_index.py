"""The kept list of a folder: always what a fresh listing gives, without looking at files, and never in the way."""

import errno
import os
import shutil
import stat
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from entrec.data import index
from entrec.data.folder import listed

LARGE = index.LARGE
HOUR = 3600 * 10**9


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of the test's own, where small folders are kept too, an hour after they were made."""
    now = time.time_ns
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(index, "LARGE", 1)
    monkeypatch.setattr(time, "time_ns", lambda: now() + HOUR)
    return tmp_path / "home"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("1.png", "a/2.png", "a/b/3.png", "a/b/4.png", "c/d/e/5.png", "c/f/6.png"):
        add(tmp_path / "data" / name)
    return tmp_path / "data"


def add(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def kept(home: Path) -> list[Path]:
    return [path for path in home.rglob("*") if path.is_file()]


def tick(folder: Path) -> None:
    """Wait until the file system's clock has moved on, as it has in the time an index demands."""
    probe = folder.parent / "probe"
    probe.touch()
    start = probe.stat().st_ctime_ns
    while probe.stat().st_ctime_ns == start:
        probe.touch()


def reference(folder: Path) -> list[str]:
    """Every image below, by Python's own walk."""
    walk = os.walk(folder, followlinks=True)
    paths = [Path(path, name) for path, _, names in walk for name in names if name.endswith(".png")]
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def refuse(*args: object) -> None:
    raise AssertionError(f"called with {args}")


def add_and_set_the_time_back(folder: Path) -> None:
    before = (folder / "a").stat()
    add(folder / "a" / "new.png")
    os.utime(folder / "a", ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES: dict[str, Callable[[Path], object]] = {
    "add a file": lambda folder: add(folder / "new.png"),
    "add a file deep inside": lambda folder: add(folder / "c" / "d" / "e" / "new.png"),
    "add a file, and set the time back": add_and_set_the_time_back,
    "remove a file": lambda folder: (folder / "a" / "b" / "3.png").unlink(),
    "rename a file": lambda folder: (folder / "a" / "b" / "3.png").rename(folder / "a" / "b" / "0.png"),
    "move a file": lambda folder: (folder / "a" / "b" / "3.png").rename(folder / "c" / "3.png"),
    "add a folder": lambda folder: add(folder / "c" / "new" / "7.png"),
    "remove a folder": lambda folder: shutil.rmtree(folder / "c" / "d"),
    "rename a folder": lambda folder: (folder / "c" / "d").rename(folder / "c" / "z"),
    "move a folder": lambda folder: (folder / "c" / "d").rename(folder / "a" / "d"),
    "fill an empty folder": lambda folder: add(folder / "empty" / "8.png"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_noticed(change: str, folder: Path, home: Path) -> None:
    (folder / "empty").mkdir()
    before = listed(folder)
    assert len(kept(home)) == 1
    tick(folder)
    CHANGES[change](folder)
    assert listed(folder) == reference(folder) != before
    assert listed(folder) == reference(folder)  # and so by the index that was written anew
    assert len(kept(home)) == 1


def test_many_changes_are_noticed(folder: Path) -> None:
    draw = np.random.default_rng(0)
    for step in range(60):
        paths = sorted(folder.rglob("*"))
        chosen = paths[draw.integers(len(paths))]
        inside = chosen if chosen.is_dir() else chosen.parent
        match draw.integers(4):
            case 0:
                add(inside / f"{step}.png")
            case 1:
                add(inside / f"folder{step}" / "1.png")
            case 2:
                chosen.rename(chosen.with_name(f"renamed{step}{chosen.suffix}"))
            case _ if chosen.is_file() and len(paths) > 5:
                chosen.unlink()
        assert listed(folder) == reference(folder)
        assert listed(folder) == reference(folder)
        tick(folder)


def test_a_link_that_leads_elsewhere_is_noticed(folder: Path, tmp_path: Path) -> None:
    for i, target in enumerate(["old", "new"]):
        add(tmp_path / target / f"{i}.png")
        os.utime(tmp_path / target, ns=(HOUR, HOUR))
    os.symlink(tmp_path / "old", tmp_path / "current")
    os.symlink(tmp_path / "current", folder / "link")  # a link to a link: no folder inside changes with that one
    assert "link/0.png" in listed(folder)
    (tmp_path / "current").unlink()
    os.symlink(tmp_path / "new", tmp_path / "current")
    assert listed(folder) == reference(folder)
    assert "link/1.png" in listed(folder)
    tick(folder)
    (folder / "link").unlink()
    os.symlink(tmp_path / "old", folder / "link")
    assert listed(folder) == reference(folder)
    assert "link/0.png" in listed(folder)


def test_a_change_behind_a_link_is_noticed(folder: Path, tmp_path: Path) -> None:
    add(tmp_path / "elsewhere" / "deep" / "1.png")
    os.symlink(tmp_path / "elsewhere", folder / "link")
    assert "link/deep/1.png" in listed(folder)
    tick(folder)
    add(tmp_path / "elsewhere" / "deep" / "2.png")
    assert listed(folder) == reference(folder)
    assert "link/deep/2.png" in listed(folder)


def test_a_link_to_nothing_is_noticed_when_it_leads_to_a_folder(folder: Path, tmp_path: Path) -> None:
    os.symlink(tmp_path / "unmounted", folder / "link")
    assert listed(folder) == reference(folder)
    add(tmp_path / "unmounted" / "1.png")
    assert "link/1.png" in listed(folder)


def test_a_second_link_to_a_folder_is_noticed_when_it_leads_elsewhere(folder: Path, tmp_path: Path) -> None:
    add(tmp_path / "new" / "1.png")
    os.symlink(folder / "a", tmp_path / "current")
    os.symlink(tmp_path / "current", folder / "link")
    assert "link/1.png" not in listed(folder)
    (tmp_path / "current").unlink()
    os.symlink(tmp_path / "new", tmp_path / "current")
    assert "link/1.png" in listed(folder)


def test_a_folder_may_become_a_run_and_be_one_no_more(folder: Path) -> None:
    everything = listed(folder)
    tick(folder)
    (folder / "a" / "checkpoints").mkdir()
    (folder / "a" / "config.yaml").touch()
    assert listed(folder) == [name for name in everything if not name.startswith("a/")]
    tick(folder)
    (folder / "a" / "config.yaml").unlink()
    assert listed(folder) == everything


def test_the_index_is_used_and_asks_folders_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = listed(folder)
    asked: list[Path] = []
    ask = os.stat

    def noted(path: str, *args: object, **kwargs: object) -> os.stat_result:
        asked.append(Path(path))
        return ask(path, *args, **kwargs)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refuse)
        patch.setattr(os, "stat", noted)
        assert listed(folder) == expected
    assert sorted(asked) == sorted([folder, *(path for path in folder.rglob("*") if path.is_dir())])


def test_a_folder_has_one_index_however_it_is_spelled(folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.symlink(folder, folder.parent / "link")
    expected = listed(folder)
    assert len(kept(home)) == 1
    monkeypatch.chdir(folder.parent)
    monkeypatch.setattr(os, "scandir", refuse)
    for spelled in ("data", "link", "data/a/..", f"{folder}/"):
        assert listed(Path(spelled)) == expected


@pytest.mark.parametrize(
    "name", ["a\nb.png", "a b .png", '"\\.png', "\x01\x7f.png", "ä\U0001f40d.png", os.fsdecode(b"\xff\xc3.png")]
)
def test_names_may_be_anything(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(folder / name.removesuffix(".png") / name)
    expected = listed(folder)
    assert expected == reference(folder)
    monkeypatch.setattr(os, "scandir", refuse)
    assert listed(folder) == expected


def test_a_damaged_index_gives_no_wrong_names_and_is_replaced(folder: Path, home: Path) -> None:
    expected = listed(folder)
    (path,) = kept(home)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place])
        assert listed(folder) == expected
        assert path.read_bytes() == whole
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        assert listed(folder) == expected
        assert path.read_bytes() == whole


@pytest.mark.parametrize("text", ["", "\0", "x", "x\0{}\x001.png", "[1, 2]", "null\0null\0null"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_is_no_index_is_replaced(text: str, packed: bool, folder: Path, home: Path) -> None:
    expected = listed(folder)
    (path,) = kept(home)
    whole = path.read_bytes()
    path.write_bytes(zlib.compress(text.encode()) if packed else text.encode())
    assert listed(folder) == expected
    assert path.read_bytes() == whole


def test_the_index_of_another_folder_is_not_believed(folder: Path, home: Path) -> None:
    expected = listed(folder)
    (path,) = kept(home)
    listed(folder / "a")
    (other,) = set(kept(home)) - {path}
    shutil.copy(other, path)
    assert listed(folder) == expected


def test_an_index_by_other_rules_is_not_believed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed(folder)
    monkeypatch.setattr(index, "_RULES", "entrec index 1: .jpg")
    monkeypatch.setattr("entrec.data.folder.EXTENSIONS", (".jpg",))
    assert listed(folder) == []


def test_a_home_that_cannot_be_written_is_done_without(folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(*args: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", read_only)
        assert listed(folder) == reference(folder)
        assert not kept(home)
    shutil.rmtree(home)
    home.touch()  # nothing can be made in it, not even by root
    assert listed(folder) == reference(folder)


def test_a_user_without_a_home_does_without(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert listed(folder) == reference(folder)


def test_others_cannot_read_the_names(folder: Path, home: Path) -> None:
    listed(folder)
    assert stat.S_IMODE((home / ".cache" / "entrec" / "index").stat().st_mode) == 0o700


def test_small_folders_leave_nothing_behind(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "LARGE", LARGE)
    (tmp_path / "data").mkdir()
    for i in range(9_999):
        (tmp_path / "data" / f"{i}.png").touch()
    assert len(listed(tmp_path / "data")) == 9_999
    assert not home.exists()
    (tmp_path / "data" / "last.png").touch()
    assert len(listed(tmp_path / "data")) == 10_000
    assert len(kept(home)) == 1


@pytest.mark.parametrize(("seconds", "indices"), [(-60, 0), (0, 0), (1, 0), (3, 1)])
def test_a_folder_that_has_just_changed_is_not_kept(
    seconds: int, indices: int, folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.utime(folder / "c" / "f", ns=(HOUR, HOUR))  # ctime still tells
    changed = (folder / "c" / "f").stat().st_ctime_ns
    monkeypatch.setattr(time, "time_ns", lambda: changed + seconds * 10**9)
    assert listed(folder) == reference(folder)
    assert len(kept(home)) == indices


@pytest.mark.parametrize("frozen", [0, HOUR])
def test_a_change_within_the_tick_of_the_listing_is_noticed(frozen: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All times on this disk are one tick of two seconds, or 0 as on a disk that keeps none."""
    ask = os.stat

    def coarse(path: str, *args: object, **kwargs: object) -> os.stat_result:
        found = ask(path, *args, **kwargs)  # type: ignore[arg-type]
        names = ("st_mode", "st_ino", "st_dev", "st_nlink", "st_uid", "st_gid", "st_size")
        times = {f"st_{kind}time{unit}": frozen // 10 ** (0 if unit else 9) for kind in "amc" for unit in ("", "_ns")}
        return os.stat_result([getattr(found, name) for name in names] + [0] * 3, times)

    monkeypatch.setattr(os, "stat", coarse)
    monkeypatch.setattr(time, "time_ns", lambda: HOUR + 19 * 10**8)
    before = listed(folder)
    add(folder / "a" / "new.png")
    assert listed(folder) == sorted([*before, "a/new.png"])
