"""A broken estimator must not speak for the paper, nor for us."""

from dataclasses import replace

import pytest

from entrec.paper.convergence.distributions import StandardGaussian
from entrec.paper.convergence.entropy import EntropyCurves, RuleCurves
from entrec.paper.convergence.findings import Finding, calibration_findings, entropy_findings
from entrec.paper.convergence.measure import Curve, Measured


def _flat(bias: float, label: str = "") -> Curve:
    return Curve(label, "k", [Measured(x, bias, 0.001, 0.1 / x, 0.001 / x, 100, predicted=0.1) for x in (64.0, 256.0, 1024.0)])


def _curves(bias: float) -> EntropyCurves:
    rules = [RuleCurves(StandardGaussian(d), *[_flat(bias)] * 5) for d in (1, 2, 5)]
    pair = (_flat(bias), _flat(bias))
    return EntropyCurves({3: pair}, {3: _flat(bias)}, {1: _flat(bias)}, rules, pair)


@pytest.mark.parametrize("bias", [0.5, 10.0, -5.0])
def test_a_constant_bias_decides_nothing_and_is_not_what_we_derive(bias: float) -> None:
    for finding in entropy_findings(_curves(bias)):
        if "variance falls" not in finding.statement:
            assert not finding.as_derived, finding.statement
            assert finding.verdict != "holds", finding.statement


def _calibration(excess: float) -> Finding:
    exact = Curve("exact", "I", [Measured(1.0, excess, 0.01, 1.0, 0.1, 100)])
    above, below = replace(exact, points=[Measured(1.0, 0.2, 0.01, 1.0, 0.1, 100)]), _flat(-1.0)
    (finding,) = calibration_findings({2: [exact, above, replace(below, points=[Measured(1.0, -0.5, 0.01, 1.0, 0.1, 100)])]})
    return finding


def test_the_bound_with_exact_terms_must_equal_the_information() -> None:
    assert _calibration(0.01).as_derived
    assert not _calibration(-1.0).as_derived
    assert not _calibration(1.0).as_derived
    assert _calibration(1.0).verdict == "does not hold"
