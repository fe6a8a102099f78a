import torch

from entrec.training.draws import generator_of, seed_of


def test_places_that_differ_in_anything_have_other_seeds() -> None:
    places = [(seed, kind, step, rank) for seed in range(5) for kind in range(4) for step in range(50) for rank in range(4)]
    assert len({seed_of(*place) for place in places}) == len(places)


def test_bits_of_neighbouring_places_are_those_of_fair_coins() -> None:
    seeds = [seed_of(0, 1, step) for step in range(4096)]
    for bit in range(63):
        share = sum(seed >> bit & 1 for seed in seeds) / len(seeds)
        assert abs(share - 0.5) < 5 * 0.5 / 4096**0.5


def test_the_same_place_gives_the_same_draws() -> None:
    first, again = (torch.rand(8, generator=generator_of("cpu", 3, 1, 4)) for _ in range(2))
    other = torch.rand(8, generator=generator_of("cpu", 3, 1, 5))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
