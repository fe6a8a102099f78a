import logging

import pytest

from entrec.training.devices import fabric_for
from entrec.training.settings import settings

PACKAGES = ("lightning.fabric", "lightning.pytorch", "lightning_fabric", "pytorch_lightning")


@pytest.mark.parametrize("package", PACKAGES)
def test_advice_on_precision_is_not_passed_on_whichever_package_speaks(
    package: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each package makes its own logger that of all when it is imported.
    monkeypatch.setattr("lightning_utilities.core.rank_zero.log", logging.getLogger(f"{package}.utilities.rank_zero"))
    for name in PACKAGES:
        caplog.set_level(logging.INFO, logger=name)
    fabric_for(settings("byol", {"device": "cpu", "precision": "bf16"}))
    assert [record.getMessage() for record in caplog.records] == []
    assert {logging.getLogger(name).level for name in PACKAGES} == {logging.INFO}
