import json
from pathlib import Path

import pytest

from entrec.training.run import Metrics, Run, open_run, write_config, write_summary


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    write_config(run, {"method": "byol", "ema": None, "rate": 0.3})
    write_summary(run, {"knn_top1": 0.5})
    assert open_run(tmp_path / "run").config == {"method": "byol", "ema": None, "rate": 0.3}
    assert run.summary == {"knn_top1": 0.5}


def test_a_folder_that_is_no_run_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"is no run: it holds no config\.yaml"):
        open_run(tmp_path)


def test_a_run_without_its_summary_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="has the run ended"):
        _ = Run(tmp_path).summary


def test_files_have_the_permissions_that_any_program_would_give_them(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    write_summary(Run(tmp_path), {})
    assert (tmp_path / "summary.json").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_metrics_come_back_with_what_was_measured_and_no_more(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "metrics.csv")
    metrics.write({"step": 1, "epoch": 0, "loss": 0.25})
    metrics.write({"step": 2, "epoch": 0, "knn_top1": 0.5})
    assert Run(tmp_path).metrics == [{"step": 1, "epoch": 0, "loss": 0.25}, {"step": 2, "epoch": 0, "knn_top1": 0.5}]


def test_a_run_that_goes_on_drops_the_rows_it_will_write_again(tmp_path: Path) -> None:
    before = Metrics(tmp_path / "metrics.csv")
    for step in range(1, 6):
        before.write({"step": step, "epoch": 0, "loss": float(step)})
    after = Metrics(tmp_path / "metrics.csv", up_to_step=3)
    after.write({"step": 4, "epoch": 0, "loss": 40.0})
    assert [row["loss"] for row in Run(tmp_path).metrics] == [1.0, 2.0, 3.0, 40.0]


def test_the_summary_is_json_that_others_can_read(tmp_path: Path) -> None:
    write_summary(Run(tmp_path), {"ema": None, "er_bound": 1.5})
    assert json.loads((tmp_path / "summary.json").read_text()) == {"ema": None, "er_bound": 1.5}
