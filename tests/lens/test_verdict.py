"""Every verdict on sets that are made to deserve it, and none of the bad ones on sets that are not."""

import math
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from entrec.lens import CodeReadings, Readings, Verdict, diagnose, look, look_at_codes
from entrec.lens.examine import examine
from entrec.lens.verdict import EARLY, FAILURES, diverging, unless_early

Views = tuple[Tensor, Tensor]
Made = Callable[[int, int], Views]


def noise(k: int, d: int) -> Tensor:
    """Rows of about length one."""
    return torch.randn(k, d) / math.sqrt(d)


def same(k: int, d: int) -> Views:
    z = noise(k, d)
    return z, z


def independent(k: int, d: int) -> Views:
    return noise(k, d), noise(k, d)


def constant(k: int, d: int) -> Views:
    z = noise(1, d).expand(k, d)
    return z, z


def nearly_constant(k: int, d: int) -> Views:
    """As near to one point as real runs come that have collapsed, and yet told apart."""
    z = noise(1, d) + 0.03 * noise(k, d)
    return z, z + 0.01 * noise(k, d)


def constant_plus_nothing_shared(k: int, d: int) -> Views:
    one = noise(1, d)
    return one + 0.1 * noise(k, d), one + 0.1 * noise(k, d)


def on_a_line(k: int, d: int) -> Views:
    z = torch.randn(k, 1) @ noise(1, d)
    return z + 1e-3 * noise(k, d), z + 1e-3 * noise(k, d)


def in_a_plane(k: int, d: int) -> Views:
    plane, z = noise(2, d), torch.randn(k, 2)
    return z @ plane, (z + 0.3 * torch.randn(k, 2)) @ plane


def in_a_plane_and_independent(k: int, d: int) -> Views:
    plane = noise(2, d)
    return torch.randn(k, 2) @ plane, torch.randn(k, 2) @ plane


def one_direction_around_a_mean(k: int, d: int) -> Views:
    """What BYOL without norms becomes with a teacher that is last step's student: the views are told apart, by one number."""
    one = torch.ones(d)
    one[1::2] = -1  # at right angles to the mean, and as large in every coordinate
    z = 0.15 * torch.randn(k, 1)
    return torch.ones(d) + z * one, torch.ones(d) + (z + 0.05 * torch.randn(k, 1)) * one


def hardly_alike(k: int, d: int) -> Views:
    """The other view nearer in seven cases of ten: products are normal, so in Phi(sqrt(d / 2) / (1 + noise^2)) of them."""
    z, noise = torch.randn(k, d), math.sqrt(math.sqrt(d / 2) / 0.5 - 1)
    return z + noise * torch.randn(k, d), z + noise * torch.randn(k, d)


def hardly_alike_around_a_mean(k: int, d: int) -> Views:
    z1, z2 = hardly_alike(k, d)
    return z1 + 8 * z1.std(), z2 + 8 * z1.std()


def clusters(k: int, d: int) -> Views:
    z = noise(10, d)[torch.randint(10, (k,))] + 0.5 * noise(k, d)
    return z + 0.3 * noise(k, d), z + 0.3 * noise(k, d)


def clusters_alone(k: int, d: int) -> Views:
    z = noise(10, d)[torch.randint(10, (k,))]
    return z + 0.3 * noise(k, d), z + 0.3 * noise(k, d)


def strength(k: int, d: int) -> float:
    """Of the noise between views: in many dimensions few rows are told apart so well that InfoNCE is at ln k."""
    return 2.0 if k < 500 and d > 8 else 1.0


def seen_twice(z: Tensor) -> Views:
    return z, z + strength(*z.shape) * z.std(dim=0) * torch.randn(z.shape)


def even(k: int, d: int) -> Views:
    return seen_twice(torch.randn(k, d))


def around_a_direction(k: int, d: int) -> Views:
    return seen_twice(torch.randn(k, d) + torch.ones(d))


def falling_as_a_root(k: int, d: int) -> Views:
    return seen_twice(torch.randn(k, d) / torch.arange(1, d + 1).sqrt())


def falling_as_one_over(k: int, d: int) -> Views:
    z = torch.randn(k, d) / torch.arange(1, d + 1)
    return z, z + 0.7 * z.std(dim=0) * torch.randn(k, d)


def positive(k: int, d: int) -> Views:
    z = torch.randn(k, d)
    return (z + 0.3).relu() + 1e-6, (z + 0.3 + strength(k, d) * torch.randn(k, d)).relu() + 1e-6


def far_apart(k: int, d: int) -> Views:
    """Two encoders, each with a mean of its own."""
    z1, z2 = seen_twice(torch.randn(k, d))
    return z1 + torch.randn(d), z2 + torch.randn(d)


def long_and_short(k: int, d: int) -> Views:
    z1, z2 = even(k, d)
    lengths = torch.linspace(0.5, 2.0, k)[:, None]
    return lengths * z1, 100 * lengths * z2


MADE: dict[Made, str] = {
    clusters: "healthy",
    constant: "collapsed",
    nearly_constant: "collapsed",
    constant_plus_nothing_shared: "collapsed",
    independent: "uninformative",
    on_a_line: "low rank",
    in_a_plane: "low rank",
    in_a_plane_and_independent: "low rank",
    one_direction_around_a_mean: "low rank",
    same: "saturated",
    hardly_alike: "weak",
    hardly_alike_around_a_mean: "weak",
}
HEALTHY: list[Made] = [
    clusters_alone, even, around_a_direction, falling_as_a_root, falling_as_one_over, positive, far_apart, long_and_short,
]  # fmt: skip


def seeds(numbers: int) -> int:
    return 3 if numbers < 50_000 else 1  # large sets differ less, and take longer


@pytest.mark.parametrize("mean", [8.0, 10.0, 15.0])
@pytest.mark.parametrize("d", [5, 8, 12, 64])
def test_a_far_mean_is_no_want_of_directions(d: int, mean: float) -> None:
    """In few dimensions it is most of the rank, though the data differ in all of them."""
    torch.manual_seed(0)
    z = torch.randn(500, d) + mean
    assert diagnose(look(z, z + 0.3 * torch.randn(500, d))).name == "healthy"


@pytest.mark.parametrize("d", [8, 64, 512])
@pytest.mark.parametrize("k", [64, 1000])
@pytest.mark.parametrize("made", MADE)
def test_every_verdict_is_reached_whatever_the_size_and_the_draw(made: Made, k: int, d: int) -> None:
    for seed in range(seeds(k * d)):
        torch.manual_seed(seed)
        z1, z2 = made(k, d)
        assert diagnose(look(z1, z2)).name == MADE[made]


@pytest.mark.parametrize("d", [8, 64, 512])
@pytest.mark.parametrize("k", [64, 1000])
@pytest.mark.parametrize("made", HEALTHY)
def test_nothing_is_found_wrong_with_healthy_sets(made: Made, k: int, d: int) -> None:
    for seed in range(seeds(k * d)):
        torch.manual_seed(seed)
        z1, z2 = made(k, d)
        verdict = diagnose(look(z1, z2))
        assert (verdict.name, verdict.remedies) == ("healthy", ()), verdict.because
        assert diagnose(look(z1)).name == "healthy"


@pytest.mark.parametrize("d", [8, 64, 512])
@pytest.mark.parametrize("share", [0.02, 0.5])
def test_rows_that_are_no_numbers_are_worse_than_anything(share: float, d: int) -> None:
    for made in (clusters, constant, on_a_line, independent, same):
        z1, z2 = (view.clone() for view in made(200, d))
        z2[: int(200 * share), 0] = math.nan
        found = examine(z1, z2)
        assert found.verdict.name == "diverging"
        assert f"{int(200 * share)} of 200 rows" in found.verdict.because[0]


def test_a_row_in_a_hundred_that_is_no_number_is_said_and_left_out() -> None:
    z1, z2 = even(1000, 8)
    z1[17, 3] = math.inf
    found = examine(z1, z2)
    assert (found.verdict.name, found.readings.rows) == ("healthy", 999)
    assert found.notes == ("1 of 1000 rows hold NaN or infinity and were left out: row 17.",)
    assert diagnose(found.readings, broken=11).name == "diverging"


def test_rows_that_are_no_numbers_are_counted_among_all_rows_and_not_among_a_sample() -> None:
    z1, z2 = even(5000, 8)
    z1[:20] = math.nan  # 4 in a thousand, but a sixth of the sample's number
    found = examine(z1, z2, max_rows=100)
    assert found.readings.rows == 100
    assert found.verdict.name != "diverging"
    z1[:100] = math.nan
    assert examine(z1, z2, max_rows=100).verdict.because == ("100 of 5000 rows are NaN, infinite or zero.",)


def test_where_no_row_is_left_there_is_a_verdict_without_readings() -> None:
    found = diverging(64, 64, "byol")
    assert found.name == "diverging"
    assert "64 of 64" in found.because[0]
    assert found.remedies == diagnose(look(*even(64, 8)), broken=64).remedies


def test_the_worst_that_holds_is_named() -> None:
    one_point, line = look(*constant_plus_nothing_shared(200, 64)), look(*in_a_plane_and_independent(200, 64))
    assert one_point.rank < 0.5 * one_point.largest_rank
    assert one_point.pairs is not None
    assert one_point.pairs.nearer < 0.7
    assert diagnose(one_point).name == "collapsed"  # and neither of few directions nor uninformative
    assert line.pairs is not None
    assert line.pairs.nearer < 0.6
    assert diagnose(line).name == "low rank"  # and not uninformative
    z = torch.randn(200, 2) @ noise(2, 64)
    assert diagnose(look(z, z)).name == "low rank"  # and not saturated
    assert diagnose(look(z, z), broken=200).name == "diverging"


@pytest.mark.parametrize("made", [*MADE, *HEALTHY])
def test_of_one_view_nothing_is_said_about_the_other(made: Made) -> None:
    z, _ = made(300, 32)
    verdict = diagnose(look(z))
    assert verdict.name in ("healthy", "collapsed", "low rank", "weak")
    assert "other" not in verdict.title
    assert not any("view" in sentence for sentence in verdict.because)


@pytest.mark.parametrize("k", [2, 3, 5, 9])
@pytest.mark.parametrize("d", [2, 64])
def test_a_few_rows_are_too_few_to_say_that_views_tell_nothing(k: int, d: int) -> None:
    for views in (same(k, d), independent(k, d)):
        assert diagnose(look(*views)).name == "saturated"


@pytest.mark.parametrize("d", [2, 3, 4])
def test_few_dimensions_can_be_healthy(d: int) -> None:
    z = torch.randn(1000, d)
    for views in ((z, z + 0.5 * torch.randn(1000, d)), clusters(1000, d)):
        assert diagnose(look(*views)).name == "healthy"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_verdict_does_not_depend_on_the_type_of_numbers(dtype: torch.dtype) -> None:
    for made, name in MADE.items():
        z1, z2 = made(300, 32)
        assert diagnose(look(z1.to(dtype), z2.to(dtype))).name == name


def of_codes(targets: Tensor, m: int, sharpness: float = 12.0) -> Views:
    """Distributions with most of their mass on one code each, in two views."""
    logits = sharpness * torch.eye(m)[targets]
    return (logits + torch.randn(len(targets), m)).softmax(dim=1), (logits + torch.randn(len(targets), m)).softmax(dim=1)


def one_code(k: int, m: int) -> Views:
    return of_codes(torch.full((k,), m // 2), m, 20.0)


def few_classes(k: int, m: int) -> Views:
    return of_codes(torch.randint(min(m, 10), (k,)), m)


def soft_classes(k: int, m: int) -> Views:
    return of_codes(torch.randint(min(m, 10), (k,)), m, 1 + math.log(m))


def even_codes(k: int, m: int) -> Views:
    return torch.full((k, m), 1 / m), torch.full((k, m), 1 / m)


def nearly_even_codes(k: int, m: int) -> Views:
    return (0.1 * torch.randn(k, m)).softmax(dim=1), (0.1 * torch.randn(k, m)).softmax(dim=1)


def other_codes(k: int, m: int) -> Views:
    return of_codes(torch.randint(m, (k,)), m)[0], of_codes(torch.randint(m, (k,)), m)[0]


CODES: dict[Made, str] = {
    one_code: "collapsed",
    few_classes: "healthy",
    soft_classes: "healthy",
    even_codes: "uninformative",
    nearly_even_codes: "uninformative",
    other_codes: "uninformative",
}


@pytest.mark.parametrize("m", [8, 64, 512])
@pytest.mark.parametrize("k", [64, 1000])
@pytest.mark.parametrize("made", CODES)
def test_every_verdict_on_codes_is_reached_whatever_the_size_and_the_draw(made: Made, k: int, m: int) -> None:
    for seed in range(seeds(k * m)):
        torch.manual_seed(seed)
        p1, p2 = made(k, m)
        assert diagnose(look_at_codes(p1, p2)).name == CODES[made]
        if made is not other_codes:
            assert diagnose(look_at_codes(p1)).name == CODES[made]


@pytest.mark.parametrize(("k", "m"), [(64, 64), (64, 512), (512, 512)])
def test_a_code_for_each_datum_says_no_more_than_ln_k(k: int, m: int) -> None:
    codes = torch.eye(m)[torch.randperm(m)[:k]]
    assert diagnose(look_at_codes(codes, codes)).name == "saturated"
    codes[: k // 20 + 2] = math.nan
    assert examine(codes, codes, codes=True).verdict.name == "diverging"


@pytest.mark.parametrize(("m", "loss"), [(21, "3.0445"), (512, "6.2383"), (4096, "8.3178")])
def test_a_loss_of_ln_m_is_named_with_its_number(m: int, loss: str) -> None:
    for made in (even_codes, nearly_even_codes):
        verdict = diagnose(look_at_codes(*made(100, m)))
        assert verdict.name == "uninformative"
        assert f"ln {m} = {loss}" in " ".join(verdict.because)
        assert f"ln {m} = {loss}" in " ".join(diagnose(look_at_codes(made(100, m)[0])).because)


@pytest.mark.parametrize(("m", "loss"), [(21, "3.0445"), (512, "6.2383"), (4096, "8.3178")])
def test_an_even_student_has_this_loss_whatever_the_teacher_says(m: int, loss: str) -> None:
    teacher = torch.eye(m)[torch.randint(m, (100,))]
    found = look_at_codes(torch.full((100, m), 1 / m), teacher)
    assert found.pairs is not None
    assert -found.pairs.reconstruction == pytest.approx(math.log(m), rel=1e-6)
    verdict = diagnose(found, "dino")
    assert verdict.name == "uninformative"
    assert f"ln {m} = {loss}" in " ".join(verdict.because)
    assert "ln(codes)" in verdict.remedies[0]


@pytest.mark.parametrize("m", [21, 512, 4096])
def test_logits_of_zero_are_an_even_guess_and_no_rows_to_leave_out(m: int) -> None:
    found = examine(torch.zeros(50, m), torch.zeros(50, m), codes=True)
    assert found.verdict.name == "uninformative"
    assert found.notes == ()
    assert found.readings.rows == 50


def all_verdicts() -> list[Verdict]:
    found: list[Readings | CodeReadings] = [look(*made(200, 32)) for made in MADE]
    found += [look(made(200, 32)[0]) for made in MADE]
    found += [look_at_codes(*made(200, 32)) for made in CODES]
    found += [look_at_codes(made(200, 32)[0]) for made in CODES]
    found.append(look_at_codes(torch.eye(64), torch.eye(64)))
    return [diagnose(found[0], broken=100), *map(diagnose, found)]


def test_every_reason_has_a_number_and_every_failure_a_remedy() -> None:
    verdicts = all_verdicts()
    assert {verdict.name for verdict in verdicts} == {
        "healthy", "weak", "collapsed", "uninformative", "low rank", "saturated", "diverging",
    }  # fmt: skip
    for verdict in verdicts:
        assert verdict.because
        assert all(re.search(r"\d", sentence) and sentence.endswith(".") for sentence in verdict.because)
        assert not re.search(r"nan|inf\b", " ".join(verdict.because))
        assert bool(verdict.remedies) == (verdict.name != "healthy")


@pytest.mark.parametrize(
    ("readings", "method", "words"),
    [
        (constant, "byol", "teacher"),
        (constant, "dino", "centring"),
        (constant, "swav", "epsilon"),
        (constant, "deepcluster", "clusters"),
        (constant, "moco", "key encoder"),
        (independent, "dino", "ln(codes)"),
        (independent, "swav", "ln(prototypes)"),
        (independent, "deepcluster", "ln(clusters)"),
        (independent, "simclr", "ln(2 x batch - 1)"),
    ],
)
def test_a_methods_own_remedy_comes_first_and_the_general_one_with_it(readings: Made, method: str, words: str) -> None:
    found = look(*readings(100, 16))
    general = diagnose(found).remedies
    own = diagnose(found, method).remedies
    assert len(general) == 1
    assert own[1:] == general
    assert words in own[0]
    assert own[0] != general[0]


@pytest.mark.parametrize("method", ["", "ir", "somebody's own"])
def test_other_methods_have_the_general_remedy(method: str) -> None:
    for made in (constant, independent, in_a_plane, same):
        found = look(*made(100, 16))
        assert diagnose(found, method).remedies == diagnose(found).remedies
        assert len(diagnose(found, method).remedies) == 1
    assert diagnose(look(*clusters(100, 16)), method).remedies == ()


@pytest.mark.parametrize("method", ["", "byol", "dino", "swav", "deepcluster", "moco", "simclr", "cmc", "ir"])
def test_who_trains_with_er_is_not_told_to(method: str) -> None:
    for made in MADE:
        found = look(*made(100, 16))
        own, with_er = diagnose(found, method), diagnose(found, method, er=True)
        assert (own.name, own.title, own.because) == (with_er.name, with_er.title, with_er.because)
        assert len(own.remedies) == len(with_er.remedies)
        assert "--er" not in " ".join(with_er.remedies)
    collapsed = diagnose(look(*constant(100, 16)), method, er=True).remedies[-1]
    for words in ("--weight", "larger batch", "learning rate"):
        assert words in collapsed
    assert "--er" in diagnose(look(*constant(100, 16)), method).remedies[-1]


def test_with_er_a_loss_that_is_minus_the_bound_stays_at_zero() -> None:
    found = look_at_codes(*even_codes(100, 16))
    assert found.pairs is not None
    assert found.pairs.er_bound == pytest.approx(0.0, abs=1e-6)
    for method in ("dino", "swav", "deepcluster"):
        assert "A bound that stays at 0" in diagnose(found, method, er=True).remedies[0]


def test_after_few_steps_no_failure_is_named_but_numbers_that_are_none() -> None:
    for verdict in all_verdicts():
        early = unless_early(verdict, EARLY - 1)
        if verdict.name in ("collapsed", "low rank", "uninformative"):
            assert early.name == "early"
            assert early.name not in FAILURES
            assert early.title.startswith("Too early to tell")
            assert early.because[1:] == verdict.because
            assert str(EARLY - 1) in early.because[0]
            assert early.remedies
        else:
            assert early == verdict
        assert unless_early(verdict, EARLY) == verdict
