import importlib
import logging

import pytest

from entrec.training.devices import fabric_for
from entrec.training.settings import settings


def test_advice_on_precision_is_not_passed_on_whichever_package_speaks(caplog: pytest.LogCaptureFixture) -> None:
    importlib.import_module("lightning.pytorch")  # from then on Fabric speaks through its logger
    levels = {name: logging.getLogger(name).level for name in ("lightning.fabric", "lightning.pytorch")}
    caplog.set_level(logging.INFO)
    fabric_for(settings("byol", {"device": "cpu", "precision": "bf16"}))
    assert [record.getMessage() for record in caplog.records] == []
    assert {name: logging.getLogger(name).level for name in levels} == levels
