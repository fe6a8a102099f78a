"""Tables from files of every type are the same table, and what is no table is refused with words that help."""

import csv
import io
import math
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from entrec.lens import embeddings
from entrec.lens.embeddings import TYPES, usable
from entrec.lens.examine import examine

Writer = Callable[[Path, Tensor], None]


def read(path: Path) -> Tensor:
    """The table alone."""
    return embeddings.read(path).table


def as_npy(path: Path, z: Tensor) -> None:
    with path.open("wb") as file:  # or NumPy would add its own suffix
        np.save(file, z.numpy())


def as_pt(path: Path, z: Tensor) -> None:
    torch.save(z, path)


def as_old_pt(path: Path, z: Tensor) -> None:
    torch.save(z, path, _use_new_zipfile_serialization=False)


def as_safetensors(path: Path, z: Tensor) -> None:
    save_file({"z": z}, path)


def as_csv(path: Path, z: Tensor) -> None:
    path.write_text("".join(",".join(map(repr, row)) + "\n" for row in z.tolist()))


WRITERS: list[tuple[str, Writer]] = [
    (".npy", as_npy), (".pt", as_pt), (".pth", as_old_pt), (".safetensors", as_safetensors), (".csv", as_csv),
]  # fmt: skip


@pytest.fixture
def table() -> Tensor:
    """Numbers that half precision holds exactly."""
    return torch.randint(-64, 65, (12, 5)).float() / 8 + 1 / 16


@pytest.mark.parametrize(("suffix", "write"), WRITERS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.int64, torch.int8, torch.uint8])
def test_every_type_of_file_and_of_number_gives_the_same_table(
    suffix: str, write: Writer, dtype: torch.dtype, tmp_path: Path, table: Tensor
) -> None:
    given = table.abs().to(dtype)
    for name in (f"z{suffix}", f"z{suffix.upper()}"):
        write(tmp_path / name, given)
        found = read(tmp_path / name)
        assert found.dtype in (torch.float32, torch.float64)
        assert torch.equal(found.double(), given.double())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
@pytest.mark.parametrize(("suffix", "write"), [(".pt", as_pt), (".safetensors", as_safetensors)])
def test_short_numbers_become_float32(suffix: str, write: Writer, dtype: torch.dtype, tmp_path: Path, table: Tensor) -> None:
    given = table.to(dtype)
    write(tmp_path / f"z{suffix}", given)
    found = read(tmp_path / f"z{suffix}")
    assert found.dtype == torch.float32
    assert torch.equal(found, given.float())


def test_doubles_stay_doubles(tmp_path: Path) -> None:
    z = torch.randn(4, 3, dtype=torch.float64)
    for suffix, write in WRITERS:
        write(tmp_path / f"z{suffix}", z)
        assert torch.equal(read(tmp_path / f"z{suffix}"), z)


@pytest.mark.parametrize("order", ["<f4", ">f4", ">f8", "<i2", ">i4"])
def test_arrays_of_either_byte_order_and_memory_order_are_read(order: str, tmp_path: Path, table: Tensor) -> None:
    whole = table.round()
    np.save(tmp_path / "z.npy", np.asfortranarray(whole.numpy().astype(order)))
    assert torch.equal(read(tmp_path / "z.npy").float(), whole)


def test_the_only_table_among_others_is_taken(tmp_path: Path, table: Tensor) -> None:
    content = {"step": 3, "mean": torch.ones(5), "z": table, "images": torch.ones(2, 3, 4)}
    torch.save(content, tmp_path / "z.pt")
    save_file({key: x for key, x in content.items() if isinstance(x, Tensor)}, tmp_path / "z.safetensors")
    assert torch.equal(read(tmp_path / "z.pt"), table)
    assert torch.equal(read(tmp_path / "z.safetensors"), table)


def test_a_tensor_that_was_being_trained_is_plain_numbers(tmp_path: Path, table: Tensor) -> None:
    torch.save(2 * table.requires_grad_(), tmp_path / "z.pt")
    torch.save(torch.nn.Parameter(table.detach()), tmp_path / "p.pt")
    for name in ("z.pt", "p.pt"):
        assert not read(tmp_path / name).requires_grad


@pytest.mark.parametrize("names", [None, "a,b,c,d,e", '"a","b, c",c,d,e', "0,1,2,3,4", "x0,1,2,3,4"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_every_kind_of_csv_gives_the_same_table(
    names: str | None, mark: str, quoting: int, ending: str, tmp_path: Path, table: Tensor
) -> None:
    stream = io.StringIO(newline="")
    csv.writer(stream, quoting=quoting, lineterminator=ending).writerows(table.tolist())  # type: ignore[arg-type]
    text = mark + ("" if names is None else names + ending) + stream.getvalue()
    (tmp_path / "z.csv").write_text(text, encoding="utf-8", newline="")
    assert torch.equal(read(tmp_path / "z.csv"), table.double())


@pytest.mark.parametrize("names", [",0,1,2,3,4", ",a,b,c,d,e", '"","V1","V2","V3","V4","V5"'])
def test_numbers_of_rows_beside_the_table_are_no_part_of_it(names: str, tmp_path: Path, table: Tensor) -> None:
    rows = "".join(f"{number},{','.join(map(repr, row))}\n" for number, row in enumerate(table.tolist()))
    (tmp_path / "z.csv").write_text(f"{names}\n{rows}")
    assert torch.equal(read(tmp_path / "z.csv"), table.double())


def test_one_hot_codes_are_no_names_of_columns(tmp_path: Path) -> None:
    for rows in ("0,1\n1,0\n0,1\n", "0,1,0\n1,0,0\n0,0,1\n"):
        (tmp_path / "z.csv").write_text(rows)
        assert read(tmp_path / "z.csv").tolist() == [[float(cell) for cell in row.split(",")] for row in rows.split()]


def test_what_is_no_number_in_the_first_row_does_not_make_it_names(tmp_path: Path) -> None:
    path = tmp_path / "z.csv"
    path.write_text("NA,1,2\n3,n/a,5\n6,7,null\n")
    found = embeddings.read(path)
    assert found.notes == ()
    assert found.table.isnan().tolist() == [[True, False, False], [False, True, False], [False, False, True]]


def test_columns_that_are_no_dimensions_are_left_out_and_said(tmp_path: Path) -> None:
    path = tmp_path / "z.csv"
    path.write_text("id,a,b,Label\n1000,1,2,7\n1001,3,4,8\n")
    found = embeddings.read(path)
    assert found.table.tolist() == [[1, 2], [3, 4]]
    assert found.notes == (
        "The first line of z.csv was taken for names of columns.",
        "Column 'id' was left out, as it is no dimension.",
        "Column 'Label' was left out, as it is no dimension.",
    )
    healthy = torch.randn(300, 8)
    lines = [f"{number},{','.join(f'{x:.4f}' for x in row)}" for number, row in enumerate(healthy.tolist())]
    path.write_text("\n".join(["id," + ",".join(f"d{i}" for i in range(8)), *lines]))
    assert examine(path).verdict.name == "healthy"


def test_a_state_dict_names_some_of_its_tables_and_what_to_give(tmp_path: Path) -> None:
    torch.save({f"layer{i}.weight": torch.randn(3, 3) for i in range(40)}, tmp_path / "w.pt")
    with pytest.raises(ValueError, match="and 35 more; weights of an encoder need --backbone and --data"):
        read(tmp_path / "w.pt")


def test_an_empty_cell_is_no_number_and_an_empty_line_nothing(tmp_path: Path) -> None:
    (tmp_path / "z.csv").write_text("1,2,3\n\n4, ,6\n,8,9\nnan,inf,-inf\n-1e-3, 2E5,+7\n")
    found = read(tmp_path / "z.csv")
    exact = [[1, 2, 3], [4, math.nan, 6], [math.nan, 8, 9], [math.nan, math.inf, -math.inf], [-1e-3, 2e5, 7]]
    torch.testing.assert_close(found, torch.tensor(exact, dtype=torch.float64), equal_nan=True, rtol=0, atol=0)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "z.npy", tmp_path):
        with pytest.raises(FileNotFoundError, match="there is no file"):
            read(path)


@pytest.mark.parametrize("name", ["z.txt", "z.npz", "z", "z.npy.gz"])
def test_other_types_of_files_are_refused_and_those_known_named(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("1,2\n3,4\n")
    with pytest.raises(ValueError, match="must be one of") as caught:
        read(tmp_path / name)
    assert all(suffix in str(caught.value) for suffix in TYPES)


@pytest.mark.parametrize("shape", [(), (6,), (2, 3, 4)])
def test_what_has_no_rows_and_dimensions_is_refused_with_its_shape(shape: tuple[int, ...], tmp_path: Path) -> None:
    np.save(tmp_path / "z.npy", np.ones(shape))
    torch.save(torch.ones(shape), tmp_path / "z.pt")
    for name in ("z.npy", "z.pt"):
        with pytest.raises(ValueError, match=r"shape \(rows, dimensions\)") as caught:
            read(tmp_path / name)
        assert f"got shape {shape}" in str(caught.value)
    save_file({"z": torch.ones(shape)}, tmp_path / "z.safetensors")
    with pytest.raises(ValueError, match="must hold one table"):
        read(tmp_path / "z.safetensors")


@pytest.mark.parametrize("dtype", ["complex64", "bool", "datetime64[s]", "U3", [("a", "f4"), ("b", "f4")]])
def test_arrays_of_other_things_than_real_numbers_are_refused(dtype: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "z.npy", np.zeros((3, 2), dtype=dtype))
    with pytest.raises(ValueError, match=r"must hold one array of numbers, got"):
        read(tmp_path / "z.npy")


@pytest.mark.parametrize("dtype", [torch.complex64, torch.bool])
def test_tensors_of_other_things_than_real_numbers_are_refused(dtype: torch.dtype, tmp_path: Path) -> None:
    torch.save(torch.zeros(3, 2, dtype=dtype), tmp_path / "z.pt")
    with pytest.raises(ValueError, match=f"must hold real numbers, got {dtype}"):
        read(tmp_path / "z.pt")


@pytest.mark.filterwarnings("ignore:Validating sparse tensor")
def test_sparse_tensors_are_refused(tmp_path: Path, table: Tensor) -> None:
    torch.save(table.to_sparse(), tmp_path / "z.pt")
    with pytest.raises(ValueError, match="must hold a dense table"):
        read(tmp_path / "z.pt")


def test_several_tables_are_refused_by_name_and_none_too(tmp_path: Path, table: Tensor) -> None:
    torch.save({"first": table, "second": table, "mean": table[0]}, tmp_path / "z.pt")
    save_file({"first": table, "second": table.clone()}, tmp_path / "z.safetensors")
    for name in ("z.pt", "z.safetensors"):
        with pytest.raises(ValueError, match="got tables first, second"):
            read(tmp_path / name)
    for content, what in (({"mean": table[0]}, "dict"), ([table], "list"), (3, "int"), ({}, "dict")):
        torch.save(content, tmp_path / "z.pt")
        with pytest.raises(ValueError, match=f"must hold one table of numbers, got {what} without a table"):
            read(tmp_path / "z.pt")
    np.savez(tmp_path / "z.npz", first=table.numpy(), second=table.numpy())
    os.rename(tmp_path / "z.npz", tmp_path / "z.npy")
    with pytest.raises(ValueError, match="an archive of several arrays"):
        read(tmp_path / "z.npy")


class Trap:
    """Whoever unpickles it makes a folder."""

    def __init__(self, place: Path) -> None:
        self.place = str(place)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.place,)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol 4")
def test_no_file_can_run_code(tmp_path: Path, table: Tensor) -> None:
    trap = Trap(tmp_path / "sprung")
    objects = np.empty((2, 2), dtype=object)
    objects[:] = trap
    np.save(tmp_path / "array.npy", objects, allow_pickle=True)
    (tmp_path / "plain.npy").write_bytes(pickle.dumps(trap))
    for protocol in (2, 4):
        (tmp_path / f"plain{protocol}.pt").write_bytes(pickle.dumps(trap, protocol=protocol))
    torch.save({"z": table, "more": trap}, tmp_path / "zip.pt")
    torch.save({"z": table, "more": trap}, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    files = sorted(path for path in tmp_path.iterdir() if path.is_file())
    assert len(files) == 6
    for path in files:
        with pytest.raises(ValueError, match="Python objects, which only running") as caught:
            read(path)
        assert "save" in str(caught.value)
        assert not (tmp_path / "sprung").exists()
    pickle.loads((tmp_path / "plain.npy").read_bytes())
    assert (tmp_path / "sprung").exists()  # so the trap does work


def test_whole_models_are_refused(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(3, 2), tmp_path / "z.pt")
    with pytest.raises(ValueError, match="save the tensor alone"):
        read(tmp_path / "z.pt")


@pytest.mark.parametrize(("suffix", "write"), WRITERS)
def test_an_empty_file_is_refused(suffix: str, write: Writer, tmp_path: Path) -> None:
    (tmp_path / f"z{suffix}").touch()
    with pytest.raises(ValueError, match=f"z{suffix} (is no|holds no)"):
        read(tmp_path / f"z{suffix}")


@pytest.mark.parametrize(("suffix", "write"), WRITERS)
def test_part_of_a_file_is_refused_wherever_it_ends(suffix: str, write: Writer, tmp_path: Path, table: Tensor) -> None:
    path = tmp_path / f"z{suffix}"
    write(path, table)
    whole = path.read_bytes()
    if suffix == ".csv":
        whole = whole[: whole.rindex(b",")]  # after a comma or within a number it may be a table, only a shorter one
        path.write_bytes(whole)
        with pytest.raises(ValueError, match="as many cells in every row"):
            read(path)
        return
    for length in {1, 2, 4, 7, 9, 20, 60, 127, 129, *range(100, len(whole), max(1, len(whole) // 12)), len(whole) - 1}:
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=f"z{suffix} "):
            read(path)


@pytest.mark.parametrize("suffix", [".npy", ".pt", ".safetensors"])
@pytest.mark.parametrize("junk", [b"hello, this is text", bytes(100), b"PK\x03\x04junk", b"\x80\x02junk", b"\x93NUMPY\x01\x00"])
def test_what_is_something_else_is_refused(suffix: str, junk: bytes, tmp_path: Path) -> None:
    (tmp_path / f"z{suffix}").write_bytes(junk)
    with pytest.raises(ValueError, match=f"z{suffix} "):
        read(tmp_path / f"z{suffix}")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"1,2\n3,4,5\n", "row 1 has 3, the first has 2"),
        (b"a,b\n1,2\n3\n", "row 1 has 1, the first has 2"),
        (b"a,b\n1,2\n3,four\n", "must hold numbers, got 'four' in row 1"),
        (b"a,b\nc,d\n", "must hold numbers, got 'c' in row 0"),
        (b"cat,1,2\ndog,3,4\n", "must hold numbers, got 'dog' in row 0"),
        (b"1;2\n3;4\n", "must hold numbers, got '3;4' in row 0"),
        (b"a,b\n", "holds no rows of numbers"),
        (b"\n\n", "holds no rows of numbers"),
        ("1,2\n3,4\n".encode("utf-16"), "is no text of comma-separated values"),
        (b"\x93NUMPY\xff\xfe", "is no text of comma-separated values"),
    ],
)
def test_what_is_wrong_with_a_csv_is_said(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "z.csv").write_bytes(content)
    with pytest.raises(ValueError, match=words):
        read(tmp_path / "z.csv")


@pytest.mark.parametrize("shape", [(11, 5), (12, 4), (5, 12)])
def test_two_views_of_other_rows_or_dimensions_are_refused(shape: tuple[int, int], table: Tensor) -> None:
    with pytest.raises(ValueError, match="two views must have the same rows and dimensions") as caught:
        usable(table, torch.ones(shape))
    assert "(12, 5)" in str(caught.value)
    assert str(shape) in str(caught.value)


def test_rows_without_numbers_or_direction_are_left_out_of_both_views_and_named(table: Tensor) -> None:
    z1, z2 = table.clone(), table.clone() + 1
    z1[2, 0], z2[5, 4], z1[7], z2[9], z1[3] = math.nan, -math.inf, 0.0, 0.0, 0.0
    z2[3, 1] = math.nan  # zero in one view and no number in the other: counted once
    found = usable(z1, z2)
    assert (found.broken, found.zero, found.rows) == ((2, 3, 5), (7, 9), 12)
    kept = [0, 1, 4, 6, 8, 10, 11]
    assert torch.equal(found.views[0], z1[kept])
    assert torch.equal(found.views[1], z2[kept])
    assert examine(z1, z2).notes == (
        "3 of 12 rows hold NaN or infinity and were left out: rows 2, 3, 5.",
        "2 of 12 rows are all zero and have no direction and were left out: rows 7, 9.",
    )


def test_of_many_rows_the_first_five_are_named() -> None:
    z = torch.randn(2000, 4)
    z[10:18] = math.nan
    z[99] = 0
    notes = examine(z).notes
    assert notes[0] == "8 of 2000 rows hold NaN or infinity and were left out: rows 10, 11, 12, 13, 14 and more."
    assert notes[1].endswith("left out: row 99.")


def test_rows_in_order_are_kept_as_they_are(table: Tensor) -> None:
    found = usable(table)
    assert (found.broken, found.zero, found.rows) == ((), (), 12)
    assert found.views[0] is table


@pytest.mark.parametrize(
    ("broken", "zero", "words"),
    [
        (12, 0, "got 0 that can be used of 12: 12 hold NaN or infinity, 0 are all zero"),
        (0, 12, "got 0 that can be used of 12: 0 hold NaN or infinity, 12 are all zero"),
        (7, 4, "got 1 that can be used of 12: 7 hold NaN or infinity, 4 are all zero"),
    ],
)
def test_fewer_than_two_rows_are_refused_with_what_became_of_the_others(
    broken: int, zero: int, words: str, table: Tensor
) -> None:
    table[:broken], table[broken : broken + zero] = math.nan, 0.0
    with pytest.raises(ValueError, match="at least 2 rows are needed") as caught:
        examine(table)
    assert words in str(caught.value)


@pytest.mark.parametrize("shape", [(0, 5), (1, 5), (4, 0), (4, 1)])
def test_tables_that_are_too_small_are_refused(shape: tuple[int, int], tmp_path: Path) -> None:
    np.save(tmp_path / "z.npy", np.ones(shape))
    with pytest.raises(ValueError, match=r"at least 2 (rows|dimensions)"):
        examine(tmp_path / "z.npy")
