"""What ranks tell each other in a step: each gradient once, and beside it what is linear in the batch; none works for others.

Every law is shown to be able to fail, on code that breaks it.
"""

import os
from collections.abc import Callable
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

from entrec.bench.messages import DDP, Message, Work, watched_step
from entrec.methods.byol import BYOL
from entrec.pairwise import backends
from entrec.training.assemble import assemble
from entrec.training.devices import fabric_for
from entrec.training.loop import Loop
from entrec.training.run import Run
from entrec.training.settings import settings
from entrec.training.update import Update
from tests.ranks import on_ranks
from tests.training.tiny import HEADS, source

ROWS = (4, 8, 12)  # of a rank, in equal steps; those of four ranks are all the images
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "simclr-er": ("simclr", {"er": True}),
    "byol-er": ("byol", {"er": True}),
    "dino": ("dino", {}),
    "dino-er": ("dino", {"er": True}),
}
VIEWS = {"simclr": 2, "byol": 2, "dino": 3}
WIDTHS = {"simclr": 8, "byol": 8, "dino": 14}  # of what the heads give: projections or codes
WORLDS = [2, pytest.param(4, marks=pytest.mark.slow)]

Steps = dict[int, Work]  # one step at each number of rows
Ranks = list[dict[str, Steps]]  # what each rank does, by case


def loop_of(case: str, rows: int, world: int) -> Loop:
    method, given = CASES[case]
    common = {"batch_size": rows * world, "epochs": 1, "device": "cpu", "backbone": "tiny"}
    wanted = settings(method, {**common, **HEADS[method], **given})
    return Loop(fabric_for(wanted), assemble(wanted, source()), Run(Path("unused")))


def steps_of(case: str, world: int) -> Steps:
    return {rows: watched_step(loop_of(case, rows, world)) for rows in ROWS}


# What makes BYOL + ER break a law.


def gradients_are_summed_again(patch: pytest.MonkeyPatch) -> None:
    def before_step(self: BYOL) -> None:
        for x in self.parameters():
            if x.grad is not None:
                dist.all_reduce(x.grad)

    patch.setattr(BYOL, "before_step", before_step, raising=False)


def gradients_are_not_summed(patch: pytest.MonkeyPatch) -> None:
    set_up = Update._set_up

    def each_on_its_own(self: Update) -> None:
        set_up(self)
        self.model._forward_module.require_backward_grad_sync = False

    patch.setattr(Update, "_set_up", each_on_its_own)


def pairs_are_gathered(patch: pytest.MonkeyPatch) -> None:
    def update(self: BYOL, step: Any) -> None:
        z = step.student[0]
        pairs = z @ z.T
        dist.all_gather([torch.empty_like(pairs) for _ in range(dist.get_world_size())], pairs)

    patch.setattr(BYOL, "update", update)


def rows_are_sent_one_by_one(patch: pytest.MonkeyPatch) -> None:
    def update(self: BYOL, step: Any) -> None:
        for row in step.student[0]:
            dist.all_reduce(row.clone())

    patch.setattr(BYOL, "update", update)


def every_rank_sums_over_all_pairs(patch: pytest.MonkeyPatch) -> None:
    log_sums = backends.log_sums

    def of_all(a: Any, b: Any, p: Any, spec: Any, same: bool, offset: int = 0) -> Any:
        return log_sums(b, b, p, spec, same)[..., offset : offset + a.shape[-2]]

    patch.setattr(backends, "log_sums", of_all)


def every_rank_encodes_all_rows(patch: pytest.MonkeyPatch) -> None:
    forward = BYOL.forward

    def of_all(self: BYOL, views: Any) -> Any:
        with torch.no_grad():
            self.encoder(torch.cat([views.images[0]] * dist.get_world_size()))
        return forward(self, views)

    patch.setattr(BYOL, "forward", of_all)


# The laws, each of one rank's steps; `alone` is what a single process does with as many rows.


def each_gradient_is_summed_once(found: Steps, alone: Steps, world: int, case: str) -> None:
    for step in found.values():
        assert step.reduced == step.parameters
        assert step.probe_reduced == step.probe_parameters
        assert sum(x.bytes for x in step.messages if x.gradients) == 4 * (step.parameters + step.probe_parameters)


def messages_are_as_many_at_any_batch_size(found: Steps, alone: Steps, world: int, case: str) -> None:
    small, *larger = [[(x.part, x.kind, x.sender) for x in step.messages] for step in found.values()]
    assert larger == [small] * len(larger)


def other_bytes_are_linear_in_the_batch(found: Steps, alone: Steps, world: int, case: str) -> None:
    small, middle, large = (sum(x.bytes for x in found[rows].others) for rows in ROWS)
    assert large - middle <= middle - small
    assert middle <= 2 * small


def what_does_not_grow_with_the_batch_is_small(found: Steps, alone: Steps, world: int, case: str) -> None:
    """A sum over the batch for each view, in the loss and in a row of metrics.csv; its gradient for each rank; and shapes."""
    method, _ = CASES[case]
    small, middle = (sum(x.bytes for x in found[rows].others) for rows in ROWS[:2])
    fixed = small - (middle - small) * ROWS[0] / (ROWS[1] - ROWS[0])
    limit = 4 * (2 + world) * VIEWS[method] * WIDTHS[method] + 64 * len(found[ROWS[0]].others)
    assert fixed <= limit < found[ROWS[0]].parameters


def a_row_of_outputs_is_sent_once_and_a_few_numbers_beside_it(found: Steps, alone: Steps, world: int, case: str) -> None:
    """Of every view the outputs, a log-sum and a reconstruction from each other view, and of these two the gradients back.

    The gradients are those of all ranks' rows. It happens in the loss, and at most once more for a row of metrics.csv.
    """
    method, _ = CASES[case]
    views = VIEWS[method]
    each = views * (WIDTHS[method] + views + world * views)
    growth = sum(x.bytes for x in found[ROWS[1]].others) - sum(x.bytes for x in found[ROWS[0]].others)
    assert growth <= 2 * 4 * each * (ROWS[1] - ROWS[0])


def no_rank_encodes_for_others(found: Steps, alone: Steps, world: int, case: str) -> None:
    for rows in ROWS:
        assert found[rows].flops == alone[rows].flops
        assert found[rows].flops["backward"] > found[rows].flops["forward"] / 2 > 0


def no_rank_pairs_for_others(found: Steps, alone: Steps, world: int, case: str) -> None:
    """Its own rows meet all ranks': so often more pairs than a single process has, and no more."""
    for rows in ROWS:
        for part, flops in found[rows].pairwise_flops.items():
            assert flops <= world * alone[rows].pairwise_flops[part], part


LAWS = [
    each_gradient_is_summed_once,
    messages_are_as_many_at_any_batch_size,
    other_bytes_are_linear_in_the_batch,
    what_does_not_grow_with_the_batch_is_small,
    a_row_of_outputs_is_sent_once_and_a_few_numbers_beside_it,
    no_rank_encodes_for_others,
    no_rank_pairs_for_others,
]
BROKEN: list[tuple[Callable[[pytest.MonkeyPatch], None], Callable[[Steps, Steps, int, str], None]]] = [
    (gradients_are_not_summed, each_gradient_is_summed_once),
    (gradients_are_summed_again, what_does_not_grow_with_the_batch_is_small),
    (rows_are_sent_one_by_one, messages_are_as_many_at_any_batch_size),
    (pairs_are_gathered, other_bytes_are_linear_in_the_batch),
    (pairs_are_gathered, a_row_of_outputs_is_sent_once_and_a_few_numbers_beside_it),
    (every_rank_encodes_all_rows, no_rank_encodes_for_others),
    (every_rank_sums_over_all_pairs, no_rank_pairs_for_others),
]


def recorded_by_gloo(world: int) -> list[tuple[str, int]]:
    """The messages of one step as gloo itself tells PyTorch's profiler of them: their kinds and their numbers' count."""
    loop = loop_of("byol-er", ROWS[0], world)
    fed = next(loop.feed.epoch(0))
    for _ in range(2):
        loop.update(fed, 0)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
        loop._ask(loop._numbers(loop.update(fed, 0)))
    events = [x for x in seen.events() or () if x.name.startswith("gloo:")]
    return sorted((x.name.removeprefix("gloo:"), sum(prod(shape) for shape in x.input_shapes)) for x in events)


def _rank(rank: int, world: int) -> dict[str, Any]:
    where = {"RANK": rank, "LOCAL_RANK": rank, "NODE_RANK": 0, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
    os.environ.update({key: str(value) for key, value in where.items()})
    found: dict[str, Any] = {case: _plain(steps_of(case, world)) for case in CASES}
    if world > 2:
        return found
    for breaks in {breaks.__name__: breaks for breaks, _ in BROKEN}.values():
        with pytest.MonkeyPatch.context() as patch:
            breaks(patch)
            found[breaks.__name__] = _plain(steps_of("byol-er", world))
    return {**found, "gloo": recorded_by_gloo(world)}


def _plain(steps: Steps) -> dict[int, Any]:
    return {rows: asdict(step) for rows, step in steps.items()}


def _steps(plain: dict[int, Any]) -> Steps:
    return {
        rows: Work(**{**step, "messages": [Message(**message) for message in step["messages"]]}) for rows, step in plain.items()
    }


@pytest.fixture(scope="module")
def alone() -> dict[str, Steps]:
    return {case: steps_of(case, 1) for case in CASES}


@pytest.fixture(scope="module")
def on(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], list[dict[str, Any]]]:
    """What all of so many ranks saw; they are started when they are first asked for."""
    known: dict[int, list[dict[str, Any]]] = {}

    def seen(world: int) -> list[dict[str, Any]]:
        if world not in known:
            known[world] = on_ranks(world, _rank, tmp_path_factory.mktemp(f"{world}-ranks"))
        return known[world]

    return seen


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("law", LAWS)
def test_law(
    law: Callable[[Steps, Steps, int, str], None],
    case: str,
    world: int,
    on: Callable[[int], list[dict[str, Any]]],
    alone: dict[str, Steps],
) -> None:
    for found in on(world):
        law(_steps(found[case]), alone[case], world, case)


@pytest.mark.parametrize(("breaks", "law"), BROKEN)
def test_what_breaks_a_law_is_noticed(
    breaks: Callable[[pytest.MonkeyPatch], None],
    law: Callable[[Steps, Steps, int, str], None],
    on: Callable[[int], list[dict[str, Any]]],
    alone: dict[str, Steps],
) -> None:
    with pytest.raises(AssertionError):
        law(_steps(on(2)[0][breaks.__name__]), alone["byol-er"], 2, "byol-er")


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("case", CASES)
def test_ranks_send_the_same(case: str, world: int, on: Callable[[int], list[dict[str, Any]]]) -> None:
    first, *others = [found[case] for found in on(world)]
    assert others == [first] * (world - 1)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_bytes_are_at_most_linear_in_the_ranks(case: str, on: Callable[[int], list[dict[str, Any]]]) -> None:
    two, four = (_steps(on(world)[0][case]) for world in (2, 4))
    for rows in ROWS:
        assert len(four[rows].messages) == len(two[rows].messages)
        for a, b in zip(two[rows].messages, four[rows].messages, strict=True):
            assert b.bytes <= (a.bytes if b.gradients else 2 * a.bytes)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("case", ["simclr-er", "byol-er"])
def test_pairwise_work_is_three_products_of_own_rows_with_all(
    case: str, world: int, on: Callable[[int], list[dict[str, Any]]]
) -> None:
    """Similarities forward, and again backward, where their weights meet the rows; once for a row of metrics.csv."""
    method, _ = CASES[case]
    for rows, step in _steps(on(world)[0][case]).items():
        product = 2 * VIEWS[method] * rows * (world * rows) * WIDTHS[method]
        wanted = {"forward": product, "backward": 2 * product, "logging": product}
        assert {part: flops for part, flops in step.pairwise_flops.items() if flops} == wanted


def test_a_single_process_sends_nothing(alone: dict[str, Steps]) -> None:
    assert [step.messages for steps in alone.values() for step in steps.values()] == [[]] * len(CASES) * len(ROWS)


def test_senders_and_parts_are_told(on: Callable[[int], list[dict[str, Any]]]) -> None:
    messages = _steps(on(2)[0]["byol-er"])[ROWS[0]].messages
    known = {(x.part, x.kind, x.sender) for x in messages}
    assert {("backward", "all_reduce", DDP), ("probe", "all_reduce", DDP)} <= known
    assert ("forward", "all_gather", "pairwise.ranks.agree") in known
    assert ("backward", "all_reduce", "pairwise.ranks._summed") in known
    assert ("logging", "all_reduce", "pairwise.ranks.largest") in known


def test_gloo_itself_tells_of_the_same_messages(on: Callable[[int], list[dict[str, Any]]]) -> None:
    for found in on(2):
        messages = _steps(found["byol-er"])[ROWS[0]].messages
        assert [tuple(x) for x in found["gloo"]] == sorted((x.kind, x.elements) for x in messages)
