"""`entrec report`: from runs to a page, with maps and neighbours, and in a real browser."""

import json
import re
import shutil
import subprocess
import sys
from html import escape, unescape
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from entrec.cli import app
from entrec.report.gallery import Gallery, shown
from entrec.report.report import report
from entrec.training.run import Run
from tests.training.tiny import folder_of_files, quick

CHROMIUM = shutil.which("chromium")
browser = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, which is not installed")]
ODD = "<b onmouseover='alert(1)'>&\"$x^2$"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("report")
    data = folder_of_files(folder / "data")
    shutil.move(data / "train" / "class0", data / "train" / "class<0>")
    shutil.move(data / "test" / "class0", data / "test" / "class<0>")
    return [quick("byol", folder / name, data, er=er) for name, er in (("plain", False), ("er", True))]


@pytest.fixture(scope="module")
def page(runs: list[Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report(runs, tmp_path_factory.mktemp("page") / "report.html", device="cpu")


def test_it_shows_a_map_and_neighbours_of_each_run(page: Path) -> None:
    text = page.read_text()
    assert text.count("<article>") == 2
    assert text.count("Coloured by class") == 2
    assert text.count("Two principal components") == 2 * 2  # in sight, and for those who cannot see
    assert text.count("class='query'") == 2 * 6
    assert text.count("class='near'") == 2 * 6 * 7
    assert "held-out" in text


def test_nothing_is_asked_of_the_network(page: Path) -> None:
    text = page.read_text()
    sources = re.findall(r"""(?:src|href)=['"]([^'"]*)""", text)
    assert all(source.startswith(("data:image/png;base64,", "#")) for source in sources)
    assert "<script" not in text


def test_names_from_the_data_are_escaped(page: Path) -> None:
    text = page.read_text()
    assert "class<0>" not in text
    assert "class&lt;0&gt;" in text


def test_neighbours_are_the_nearest() -> None:
    angles = torch.tensor([0.0, 0.1, 0.25, 1.5, 1.6, 1.75, 3.0, 3.1])
    features = torch.stack([angles.cos(), angles.sin()], dim=1)
    pictures = [torch.full((1, 4, 4), 30 * place, dtype=torch.uint8) for place in range(8)]
    html = shown([Gallery("mine", features, pictures, torch.full((8,), -1), ())])
    strips = re.findall(r"<div class='strip'>(.*?)</div>", html)
    assert re.findall(r"alt='image (\d)'", strips[0])[:3] == ["0", "1", "2"]
    assert re.findall(r"alt='image (\d)'", strips[-1])[:2] == ["7", "6"]
    assert "Coloured by cluster" in html


def gallery(name: str, *classes: str) -> Gallery:
    features = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
    return Gallery(name, features, [torch.zeros(3, 8, 8, dtype=torch.uint8)] * 20, torch.arange(20) % len(classes), classes)


@pytest.mark.parametrize("odd", [ODD, "_hidden", "\u6f22\u5b57", "$x_{", ""])
def test_odd_names_of_classes_do_no_harm(odd: str) -> None:
    html = shown([gallery(odd, odd, "other")])
    assert "<b onmouseover" not in html
    names = re.findall(r"<li>.*?</svg>(.*?)</li>", html)
    assert [unescape(name) for name in names] == [odd, "other"]


def test_each_map_names_its_own_classes() -> None:
    found = re.findall(r"<article>(.*?)</article>", shown([gallery("one", "cat", "dog"), gallery("two", "oak", "ash", "elm")]))
    assert [re.findall(r"<li>.*?</svg>(.*?)</li>", one) for one in found] == [["cat", "dog"], ["oak", "ash", "elm"]]
    assert [one.count("<title>") for one in found] == [2, 3]


def test_umap_stands_beside_pca_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fake:
        def __init__(self, **given: Any) -> None:
            assert given["random_state"] == 0

        def fit_transform(self, features: Any) -> Any:
            return features[:, :2]

    module = ModuleType("umap")
    module.__dict__.update(UMAP=Fake, __spec__=ModuleSpec("umap", None))
    assert "UMAP" not in shown([gallery("mine", "cat", "dog")])
    monkeypatch.setitem(sys.modules, "umap", module)
    html = shown([gallery("mine", "cat", "dog")])
    assert html.count("<figure>") == 2
    assert re.findall(r"<p class='small'>(Two principal|UMAP)", html) == ["Two principal", "UMAP"]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_handful_of_images_has_a_map(count: int) -> None:
    pictures = [torch.zeros(1, 4, 4, dtype=torch.uint8)] * count
    html = shown([Gallery("mine", torch.ones(count, 5), pictures, torch.full((count,), -1), ())])
    assert "nan" not in html
    assert html.count("class='query'") == count


def test_without_images_no_data_are_needed(runs: list[Run], tmp_path: Path) -> None:
    shutil.copytree(runs[0].folder, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    found = report([tmp_path / "run"], tmp_path / "page.html", images=False)
    assert "Nearest neighbours" not in found.read_text()
    assert "left out" not in found.read_text()


def test_the_command_writes_it_and_loses_nothing(runs: list[Run], tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("mine")
    words = ["report", *(str(run.folder) for run in runs), "--out", str(tmp_path / "page.html"), "--no-images"]
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 2
    assert (tmp_path / "page.html").read_text() == "mine"
    assert CliRunner().invoke(app, [*words, "--overwrite"]).exit_code == 0
    assert "BYOL + ER" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(("removed", "says"), [("config.yaml", "is no run"), ("metrics.csv", "has no metrics.csv")])
def test_half_a_run_is_named(removed: str, says: str, runs: list[Run], tmp_path: Path) -> None:
    shutil.copytree(runs[0].folder, tmp_path / "run")
    (tmp_path / "run" / removed).unlink()
    result = CliRunner().invoke(app, ["report", str(tmp_path / "run"), "--out", str(tmp_path / "page.html")])
    assert result.exit_code == 2
    assert says in " ".join(result.output.split())
    assert not (tmp_path / "page.html").exists()


def in_a_browser(page: Path, script: str, folder: Path, *more: str) -> tuple[object, str]:
    """What a script finds in the page once it is loaded, and what the browser complained of."""
    wanted = (
        "<script>addEventListener('load', () => { document.title = JSON.stringify((() => {" + script + "})()); });</script>"
    )
    copy = folder / "copy.html"
    copy.write_text(page.read_text().replace("</html>", f"{wanted}</html>"))
    assert CHROMIUM is not None
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--virtual-time-budget=3000"]
    command = [CHROMIUM, *options, *more, f"--user-data-dir={folder / 'profile'}", "--dump-dom", copy.as_uri()]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    (title,) = re.findall(r"<title>(.*?)</title>", found.stdout, flags=re.DOTALL)[:1]
    return json.loads(unescape(title)), "\n".join(line for line in found.stderr.splitlines() if "CONSOLE" in line)


def on_a_phone(page: Path, script: str, folder: Path) -> Any:
    """What a script finds in the page, as `page`, in a frame of a phone's width: a window cannot be as narrow."""
    frame = folder / "phone.html"
    inner = f"<iframe style='width: 390px; height: 800px; border: 0' srcdoc='{escape(page.read_text(), quote=True)}'></iframe>"
    frame.write_text(f"<!doctype html><html><meta charset='utf-8'><title></title>{inner}</html>")
    found, complaints = in_a_browser(frame, f"const page = frames[0].document; {script}", folder)
    assert complaints == ""
    return found


class TestInABrowser:
    pytestmark = browser

    def test_curves_are_drawn_and_nothing_is_complained_of(self, page: Path, tmp_path: Path) -> None:
        script = "return [...document.querySelectorAll(\"[id^='run0-'] path\")].map(x => x.getBoundingClientRect().width)"
        widths, complaints = in_a_browser(page, script, tmp_path)
        assert isinstance(widths, list)
        assert max(widths) > 50
        assert complaints == ""

    def test_a_box_hides_its_run(self, page: Path, tmp_path: Path) -> None:
        script = (
            "const curve = i => document.querySelector(`[id^='run${i}-']`);"
            "const shown = () => [0, 1].map(i => getComputedStyle(curve(i)).display != 'none');"
            "const before = shown(); document.getElementById('show0').click(); return [before, shown()];"
        )
        assert in_a_browser(page, script, tmp_path)[0] == [[True, True], [False, True]]

    def test_boxes_can_be_reached_by_keyboard(self, page: Path, tmp_path: Path) -> None:
        script = (
            "return [0, 1].map(i => { const box = document.getElementById(`show${i}`); box.focus();"
            "return [document.activeElement === box, box.tabIndex, box.labels[0].textContent]; })"
        )
        assert in_a_browser(page, script, tmp_path)[0] == [[True, 0, "BYOL"], [True, 0, "BYOL + ER"]]

    def test_nothing_is_loaded_but_the_page(self, page: Path, tmp_path: Path) -> None:
        script = "return performance.getEntriesByType('resource').map(x => x.name).filter(x => !x.startsWith('data:'))"
        assert in_a_browser(page, script, tmp_path)[0] == []

    def test_a_narrow_window_needs_no_scrolling_sideways(self, page: Path, tmp_path: Path) -> None:
        script = "const root = document.documentElement; return [root.clientWidth, root.scrollWidth]"
        found, _ = in_a_browser(page, script, tmp_path, "--window-size=500,900")
        assert isinstance(found, list)
        assert found[1] <= found[0] <= 500

    def test_text_in_figures_can_be_read_on_a_phone(self, page: Path, tmp_path: Path) -> None:
        script = (
            "return [...page.querySelectorAll('figure text')].map("
            "x => parseFloat(frames[0].getComputedStyle(x).fontSize) * x.getScreenCTM().a)"
        )
        sizes = on_a_phone(page, script, tmp_path)
        assert len(sizes) > 20
        assert min(sizes) >= 9

    def test_all_of_the_table_is_in_sight_on_a_phone(self, page: Path, tmp_path: Path) -> None:
        script = (
            "const right = x => x.getBoundingClientRect().right; const root = page.documentElement;"
            "return [frames[0].innerWidth, root.scrollWidth, ...[...page.querySelectorAll('td, figure, img')].map(right)]"
        )
        window, *rights = on_a_phone(page, script, tmp_path)
        assert window == 390
        assert max(rights) <= 390

    def test_numbers_stay_beside_their_axes(self, page: Path, tmp_path: Path) -> None:
        """No text of a figure leaves it, whatever the font."""
        script = (
            "const place = x => x.getBoundingClientRect();"
            "return [...page.querySelectorAll('figure svg')].flatMap(figure => { const box = place(figure);"
            "return [...figure.querySelectorAll('text')].map(place)"
            ".map(x => Math.min(x.left - box.left, box.right - x.right, box.bottom - x.bottom)); })"
        )
        assert min(on_a_phone(page, script, tmp_path)) >= 0
