"""`entrec lens` from files to a table, a verdict, a page and JSON."""

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.cells import cell_len
from torch import Tensor
from typer.testing import CliRunner, Result

from entrec import cli
from entrec.lens import CodeReadings, Pairs, Readings
from entrec.lens import examine as module
from entrec.lens.page import page

runner = CliRunner()


def lens(*arguments: str | Path, columns: int = 80) -> Result:
    return runner.invoke(cli.app, ["lens", *map(str, arguments)], env={"COLUMNS": str(columns), "TERM": "dumb"})


def save(path: Path, z: Tensor) -> Path:
    np.save(path, z.numpy())
    return path


def words(result: Result) -> str:
    return " ".join(result.output.split())


def readings(*given: Any, **options: Any) -> tuple[Readings, Pairs]:
    """What the command should have read."""
    found = module.examine(*given, **options).readings
    assert isinstance(found, Readings)
    assert found.pairs is not None
    return found, found.pairs


def code_readings(*given: Any) -> CodeReadings:
    found = module.examine(*given, codes=True).readings
    assert isinstance(found, CodeReadings)
    return found


def strictly(text: str) -> Any:
    """JSON as other languages read it: NaN and Infinity are no words of it."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture
def views(tmp_path: Path) -> tuple[Path, Path]:
    z = torch.randn(400, 16)
    return save(tmp_path / "z1.npy", z), save(tmp_path / "z2.npy", z + 0.7 * torch.randn(400, 16))


class Outline(HTMLParser):
    """The tags of a page, with whatever they point to and do, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.pointers: list[str] = []
        self.actions: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.pointers += [value or "" for key, value in attrs if key in ("src", "href", "xlink:href", "data", "action")]
        self.actions += [key for key, _ in attrs if key.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.text += f" {data}"


def assert_needs_nothing_but_itself(text: str) -> None:
    outline = Outline(text)
    assert text.startswith("<!doctype html>")
    assert {"script", "link", "iframe", "img", "object", "embed", "form"}.isdisjoint(outline.tags)
    assert [pointer for pointer in outline.pointers if not pointer.startswith("#")] == []
    assert outline.actions == []
    assert re.findall(r"url\((?!#)", text) == []
    assert "@import" not in text
    assert set(re.findall(r"https?://[^\s\"'<>]*", text)) <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert outline.tags.count("svg") == 2


def test_two_views_have_a_table_and_a_verdict(views: tuple[Path, Path]) -> None:
    result = lens(*views)
    assert result.exit_code == 0
    found, pairs = readings(*views)
    for name, value in (
        ("entropy (Joe, leave-one-out)", f"{found.entropy:.2f}"),
        ("effective rank", f"{found.rank:.1f}"),
        ("own other view nearer", f"{pairs.nearer:.1%}"),
        ("ER bound", f"{pairs.er_bound:.2f}"),
        ("InfoNCE bound", f"{pairs.infonce_bound:.2f}"),
        ("alignment", f"{pairs.alignment:.3f}"),
    ):
        assert f"{name} {value}" in words(result)
    assert "Healthy: spread out, and one view tells of the other" in words(result)
    assert all(sentence in words(result) for sentence in module.examine(*views).verdict.because)
    assert "What helps" not in result.output


def test_one_view_has_no_word_about_the_other_but_that(views: tuple[Path, Path]) -> None:
    result = lens(views[0])
    assert result.exit_code == 0
    assert "effective rank" in result.output
    assert not re.search(r"ER bound|InfoNCE|nearer", result.output)
    assert "Of one view it cannot be said what it tells of another" in words(result)


def test_failures_are_named_with_what_helps(tmp_path: Path) -> None:
    z = save(tmp_path / "z.npy", torch.ones(100, 8) + 1e-3 * torch.randn(100, 8))
    result = lens(z, z, "--method", "byol")
    assert result.exit_code == 0
    assert "Constant collapse" in result.output
    assert words(result).count("What helps:") == 2
    assert words(result).index("slower teacher") < words(result).index("Train with entropy")
    assert words(lens(z, z)).count("What helps:") == 1
    with_er = words(lens(z, z, "--method", "byol", "--er"))
    assert with_er.count("What helps:") == 2
    assert "--er" not in with_er
    assert "--weight" in with_er


def test_every_type_of_file_has_the_same_output(views: tuple[Path, Path], tmp_path: Path) -> None:
    z = torch.from_numpy(np.load(views[0]))
    torch.save(z, tmp_path / "z.pt")
    np.savetxt(tmp_path / "z.csv", z.numpy(), delimiter=",", header="a" + ",a" * 15, comments="")
    named = "The first line of z.csv was taken for names of columns.\n"
    outputs = {lens(path).output.replace(named, "") for path in (views[0], tmp_path / "z.pt", tmp_path / "z.csv")}
    assert len(outputs) == 1
    assert named in lens(tmp_path / "z.csv").output


@pytest.mark.parametrize("as_logits", [True, False])
def test_codes_can_be_logits_or_probabilities(as_logits: bool, tmp_path: Path) -> None:
    logits = 4 * torch.randn(300, 21)
    other = logits + torch.randn(300, 21)
    paths = [
        save(tmp_path / f"{n}.npy", x if as_logits else x.softmax(dim=1)) for n, x in enumerate((logits, other))
    ]  # both have the same distributions
    exact = code_readings(logits.softmax(dim=1), other.softmax(dim=1))
    result = lens(*paths, "--codes")
    assert result.exit_code == 0
    assert f"entropy of the codes in use {exact.marginal:.4f} 0 to ln 21 = 3.0445" in words(result)
    assert f"entropy of a datum's codes {exact.conditional:.4f}" in words(result)
    assert "Healthy" in result.output
    assert "InfoNCE" not in result.output
    assert "Healthy" in lens(paths[0], "--codes").output


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_probabilities_in_half_precision_are_no_logits(dtype: torch.dtype, tmp_path: Path) -> None:
    p = (5 * torch.randn(100, 1000)).softmax(dim=1)
    torch.save(p.to(dtype), tmp_path / "p.pt")
    assert code_readings(tmp_path / "p.pt").conditional == pytest.approx(code_readings(p).conditional, rel=0.01)


@pytest.mark.parametrize(("level", "noise"), [(0, 0), (1 / 4096, 0), (3, 0.01)])
def test_codes_at_ln_m_are_named_with_the_number(level: float, noise: float, tmp_path: Path) -> None:
    result = lens(save(tmp_path / "p.npy", level + noise * torch.randn(50, 4096)), "--codes", "--method", "dino")
    assert result.exit_code == 0
    assert "Uninformative" in result.output
    assert "ln 4096 = 8.3178" in words(result)
    assert "A loss that stays at ln(codes)" in words(result)


def test_the_page_has_the_verdict_and_the_numbers_and_needs_nothing_but_itself(
    views: tuple[Path, Path], tmp_path: Path
) -> None:
    result = lens(*views, "--html", tmp_path / "pages" / "z.html")
    assert result.exit_code == 0
    assert "Written to" in result.output
    text = (tmp_path / "pages" / "z.html").read_text(encoding="utf-8")
    assert_needs_nothing_but_itself(text)
    said = " ".join(Outline(text).text.split())
    for phrase in ("z1.npy and z2.npy", "Healthy", "effective rank", "ER bound", "Effective rank", "nats"):
        assert phrase in said


ROUNDED = torch.arange(1.0, 12.0).double().expand(50, 11)  # whose directions have a cosine of 1 + 2e-16 with themselves


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("z", "codes"),
    [(torch.ones(50, 8), False), (ROUNDED, False), (torch.eye(3)[:2], False), (torch.zeros(9, 4), True)],
)
def test_even_the_plainest_sets_have_a_page(z: Tensor, codes: bool) -> None:
    text = page(module.examine(z, z, codes=codes), "title")
    assert_needs_nothing_but_itself(text)
    assert not re.search(r"\b(nan|inf)\b", Outline(text).text.split("Readings")[1], re.IGNORECASE)


def test_a_tensor_that_was_being_trained_has_a_page_too(tmp_path: Path) -> None:
    torch.save(2 * torch.randn(50, 4).requires_grad_(), tmp_path / "z.pt")
    assert lens(tmp_path / "z.pt", "--html", tmp_path / "z.html").exit_code == 0


def test_names_of_files_cannot_write_into_the_page(tmp_path: Path) -> None:
    hostile = tmp_path / "<img src=x onerror=alert(1)>.npy"
    try:
        save(hostile, torch.randn(50, 4))
    except OSError:
        pytest.skip("this file system has no such names")
    other = save(tmp_path / "'\"&lt;[bold]z.npy", torch.randn(50, 4))
    result = lens(hostile, other, "--html", tmp_path / "z.html", "--out", tmp_path / "[red]z.json")
    assert result.exit_code == 0
    assert (tmp_path / "[red]z.json").exists()
    assert "[red]z.json" in result.output.replace("\n", "")
    text = (tmp_path / "z.html").read_text()
    assert_needs_nothing_but_itself(text)
    assert "<img" not in text
    assert f"{hostile.name} and {other.name}" in Outline(text).text


def test_json_holds_the_verdict_the_readings_and_what_was_left_out(views: tuple[Path, Path], tmp_path: Path) -> None:
    z = torch.from_numpy(np.load(views[0]))
    z[3], z[5] = math.nan, 0.0
    save(views[0], z)
    assert lens(*views, "--out", tmp_path / "z.json").exit_code == 0
    document = strictly((tmp_path / "z.json").read_text())
    found, pairs = readings(*views)
    assert document["verdict"]["name"] == "healthy"
    assert document["verdict"]["because"] == list(module.examine(*views).verdict.because)
    assert document["readings"]["entropy"] == found.entropy
    assert document["readings"]["pairs"]["er_bound"] == pairs.er_bound
    assert (document["rows"], document["readings"]["rows"]) == (400, 398)
    assert (document["broken_rows"], document["zero_rows"]) == ([3], [5])
    assert len(document["notes"]) == 2


def test_json_of_codes_and_of_one_view(tmp_path: Path) -> None:
    p = save(tmp_path / "p.npy", torch.eye(4).repeat(5, 1))
    assert lens(p, "--codes", "--out", tmp_path / "p.json").exit_code == 0
    document = strictly((tmp_path / "p.json").read_text())
    assert document["readings"]["codes"] == 4
    assert document["readings"]["pairs"] is None


def test_json_has_null_for_what_is_no_number(views: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, (found, pairs) = module.examine(*views), readings(*views)
    odd = replace(found, rank=math.inf, spread=(math.nan, 1.0, -math.inf), pairs=replace(pairs, er_bound=math.nan))
    monkeypatch.setattr(module, "examine", lambda *args, **options: whole._replace(readings=odd))
    assert lens(*views, "--out", tmp_path / "z.json").exit_code == 0
    written = strictly((tmp_path / "z.json").read_text())["readings"]
    assert (written["rank"], written["spread"], written["pairs"]["er_bound"]) == (None, [None, 1.0, None], None)
    assert written["entropy"] == found.entropy


@pytest.mark.parametrize("option", ["--html", "--out"])
def test_files_are_replaced_only_if_asked(option: str, views: tuple[Path, Path], tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    result = lens(*views, option, mine)
    assert result.exit_code == 2
    assert f"already exists; choose another {option}, or replace it with --overwrite" in words(result)
    assert mine.read_text() == "mine"
    assert lens(*views, option, mine, "--overwrite").exit_code == 0
    assert mine.read_text()[:1] == ("<" if option == "--html" else "{")
    assert lens(*views, option, tmp_path).exit_code == 2  # a folder


@pytest.mark.parametrize("option", ["--html", "--out"])
def test_nothing_is_lost_or_left_behind_where_looking_fails(option: str, views: tuple[Path, Path], tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    before = sorted(tmp_path.iterdir())
    (tmp_path / "bad.npy").write_bytes(views[0].read_bytes()[:500])
    assert lens(tmp_path / "bad.npy", option, mine, "--overwrite").exit_code == 2
    assert mine.read_text() == "mine"
    (tmp_path / "bad.npy").unlink()
    assert sorted(tmp_path.iterdir()) == before


def test_the_embeddings_and_the_page_are_not_written_over(views: tuple[Path, Path], tmp_path: Path) -> None:
    before = views[1].read_bytes()
    both = ("--html", tmp_path / "both", "--out", tmp_path / "folder" / ".." / "both")
    (tmp_path / "folder").mkdir()
    for options in (("--out", views[1]), ("--html", views[1]), both):
        result = lens(*views, *options, "--overwrite")
        assert result.exit_code == 2
        assert "must be two files" in words(result)
    assert views[1].read_bytes() == before
    assert not (tmp_path / "both").exists()


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("none.npy", None, "there is no file"),
        ("z.txt", b"1,2", "must be one of .npy, .pt, .pth, .safetensors, .csv, got .txt"),
        ("z.npy", b"", "is no array of NumPy's"),
        ("z.pt", b"", "is no file of torch.save's"),
        ("z.pt", b"text", "is"),
        ("z.safetensors", b"", "is no safetensors file"),
        ("z.csv", b"", "holds no rows of numbers"),
        ("z.csv", b"1,2\n3\n", "as many cells in every row"),
        ("z.csv", b"1,2\n3,x\n", "got 'x' in row 1"),
        ("z.csv", b"1,2\n", "at least 2 rows are needed"),
        ("z.csv", b"1\n2\n3\n", "at least 2 dimensions"),
        ("z.csv", b"nan,1\nnan,2\n0,0\n", "2 hold NaN or infinity, 1 are all zero"),
    ],
)
def test_bad_input_is_one_message_and_exit_status_2(name: str, content: bytes | None, complaint: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    result = lens(tmp_path / name, columns=1000)
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert complaint in words(result)
    assert "Traceback" not in result.output
    assert len(result.output.strip().splitlines()) == 1
    assert result.output.startswith("error:")


def test_views_that_do_not_fit_and_odd_settings_are_refused(views: tuple[Path, Path], tmp_path: Path) -> None:
    short = save(tmp_path / "short.npy", torch.randn(399, 16))
    one = save(tmp_path / "one.npy", torch.ones(30, 1))
    for arguments, complaint in (
        ((views[0], short), "two views must have the same rows and dimensions, got shapes (400, 16) and (399, 16)"),
        ((views[0], "--kappa", "0"), "kappa must be positive"),
        ((views[0], "--kappa", "nan"), "kappa must be positive"),
        ((views[0], "--max-rows", "1"), "--max-rows"),
        ((one, "--codes"), "at least 2 codes"),
    ):
        result = lens(*arguments, columns=200)
        assert result.exit_code == 2
        assert complaint in words(result)
        assert "Traceback" not in result.output


@pytest.mark.parametrize("d", [2, 512, 4096])
def test_output_fits_80_columns(d: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a path's own length is the user's
    z = torch.randn(60, d)
    z[:4], z[5] = math.nan, 0.0
    path, other = save(tmp_path / "z.npy", z), save(tmp_path / "other.npy", z + torch.randn(60, d))
    collapsed = save(tmp_path / "c.npy", 1 + 1e-4 * torch.randn(60, d))
    for arguments in ((path, other), (path,), (collapsed, collapsed, "--method", "dino"), (path, other, "--codes")):
        result = lens(*arguments, "--out", Path("z.json"), "--overwrite")
        assert result.exit_code == 0
        assert max(map(cell_len, result.output.splitlines())) <= 80
        assert "…" not in result.output


def test_a_sample_is_said_and_the_same_every_time(views: tuple[Path, Path], tmp_path: Path) -> None:
    documents = []
    for number, rows in enumerate((100, 100, 400)):
        result = lens(*views, "--max-rows", str(rows), "--out", tmp_path / f"{number}.json")
        assert result.exit_code == 0
        assert ("100 rows of 400 were looked at, chosen at random." in words(result)) == (rows == 100)
        documents.append(strictly((tmp_path / f"{number}.json").read_text()))
    assert documents[0] == documents[1]
    assert documents[0]["readings"]["rows"] == 100
    assert documents[0]["readings"]["entropy"] != documents[2]["readings"]["entropy"]
    assert module.examine(*views, max_rows=100, seed=1).readings != module.examine(*views, max_rows=100).readings


def test_a_sample_keeps_the_views_together() -> None:
    z = torch.randn(500, 8)
    found = module.examine(z, 2 * z, max_rows=50)
    assert torch.equal(2 * found.embeddings.views[0], found.embeddings.views[1])
    assert found.readings.pairs is not None
    assert found.readings.pairs.nearer == 1


def test_kappa_is_the_kernels(views: tuple[Path, Path], tmp_path: Path) -> None:
    assert lens(*views, "--kappa", "3", "--out", tmp_path / "z.json").exit_code == 0
    written = strictly((tmp_path / "z.json").read_text())["readings"]
    assert written["kappa"] == 3
    assert written["entropy"] == readings(*views, kappa=3.0)[0].entropy


def test_help_names_what_there_is() -> None:
    output = lens("--help", columns=200).output
    options = ("Z1", "Z2", "--kappa", "--codes", "--method", "--max-rows", "--html", "--out", "--overwrite")
    assert [word for word in options if word not in output] == []
