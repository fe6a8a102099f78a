"""`entrec report`: from runs to a page, with maps and neighbours, and in a real browser."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

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
    assert text.count("<svg") == 2  # curves and maps
    assert "coloured by class" in text
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
    assert "coloured by cluster" in html


def test_odd_names_of_classes_do_no_harm() -> None:
    features = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
    pictures = [torch.zeros(3, 8, 8, dtype=torch.uint8)] * 20
    html = shown([Gallery(ODD, features, pictures, torch.arange(20) % 2, (ODD, "other"))])
    assert "<b onmouseover" not in html
    assert ODD in unescape(html)


def test_without_images_no_data_are_needed(runs: list[Run], tmp_path: Path) -> None:
    shutil.copytree(runs[0].folder, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    found = report([tmp_path / "run"], tmp_path / "page.html", images=False)
    assert "Nearest neighbours" not in found.read_text()
    with pytest.raises(FileNotFoundError, match=r"no checkpoint.*--no-images"):
        report([tmp_path / "run"], tmp_path / "other.html", device="cpu")
    assert not (tmp_path / "other.html").exists()


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


class TestInABrowser:
    pytestmark = browser

    def test_curves_are_drawn_and_nothing_is_complained_of(self, page: Path, tmp_path: Path) -> None:
        script = "return [...document.querySelectorAll(\"[id^='run0-'] path\")].map(x => x.getBBox().width)"
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

    def test_nothing_is_loaded_but_the_page(self, page: Path, tmp_path: Path) -> None:
        script = "return performance.getEntriesByType('resource').map(x => x.name).filter(x => !x.startsWith('data:'))"
        assert in_a_browser(page, script, tmp_path)[0] == []

    def test_a_narrow_window_needs_no_scrolling_sideways(self, page: Path, tmp_path: Path) -> None:
        script = "const root = document.documentElement; return [root.clientWidth, root.scrollWidth]"
        found, _ = in_a_browser(page, script, tmp_path, "--window-size=500,900")
        assert isinstance(found, list)
        assert found[1] <= found[0] <= 500
