"""The masks page's settings: what they become, what follows, what is refused, and how long timing may take."""

import pytest
import torch

from attnviz.maps.draw import stage_map
from attnviz.mask_view import guard, timing
from attnviz.mask_view import survey as surveys
from attnviz.mask_view.scores import change, drawn_mask, query_and_key
from attnviz.mask_view.settings import HEADS, KNOBS, every_name, mask_knobs, other_knobs
from attnviz.mask_view.survey import region, survey
from attnviz.mask_view.view import SEQUENCES, settle
from attnviz.masks import MASKS, dense
from attnviz.score_mods import SCORE_MODS
from attnviz.text import Refusal
from tests.peak import peak_bytes


def view(**given: str):
    settled = settle(given)
    assert settled.problems == () and settled.notes == ()
    return settled.view


@pytest.mark.parametrize("key", MASKS)
def test_every_mask_is_read_back_from_its_own_link(key):
    settled = settle({"mask": key, "join": "or", "other": key, "length": "20"})
    again = settle(settled.link())
    assert again.view == settled.view and not again.problems
    assert set(mask_knobs(key)) | set(other_knobs(key)) <= every_name()


@pytest.mark.parametrize("key", SCORE_MODS)
def test_every_score_change_is_read_back(key):
    settled = settle({"score_mod": key})
    assert settle(settled.link()).view == settled.view
    assert settled.view.build_score_mod().key == SCORE_MODS[key].build().key


def test_settings_at_their_defaults_leave_the_link_empty():
    assert settle({}).link() == {}
    assert view().key_length == view().length == KNOBS["length"].default
    assert view(length="9").key_length == 9 and settle({"length": "9"}).link() == {"length": "9"}


@pytest.mark.parametrize(("join", "allowed"), [("none", "1100"), ("and", "1000"), ("or", "1110"), ("and_not", "0100")])
@pytest.mark.parametrize("invert", [False, True])
def test_two_masks_are_joined_cell_by_cell(join, allowed, invert):
    """Row 1 of four: causal sees keys 0 and 1; the second mask keys 0 and 2."""
    made = view(length="4", join=join, other="own", other_rule="kv_idx % 2 == 0", invert=str(int(invert))) if (
        join != "none"
    ) else view(length="4", invert=str(int(invert)))  # fmt: skip
    row = dense(made.build_mask(), 4, 4)[0, 0, 1].tolist()
    assert [cell != invert for cell in row] == [sign == "1" for sign in allowed]


def test_a_batch_is_as_long_as_its_padding_and_its_sequence_is_one_of_it():
    assert (view(mask="padding", lengths="3,4").batch, view().batch) == (2, 1)
    assert view(mask="padding", lengths="3,4", join="and", other="padding", other_lengths="5,6,7").batch == 2
    assert view(mask="own", rule="kv_idx < batch").batch == SEQUENCES
    settled = settle({"mask": "padding", "lengths": "3,4", "sequence": "5"})
    assert settled.view.sequence == 1 and "this view has 2; using 1" in settled.notes[0].en


def test_heads_are_there_where_they_differ():
    assert (view().heads, view(score_mod="alibi").heads, view(mask="random_block").heads) == (1, HEADS, HEADS)
    assert settle({"head": "3"}).view.head == 0 and settle({"head": "3", "score_mod": "alibi"}).view.head == 3


FOLLOWS = {
    "window": ({"mask": "sliding_window", "window": "50", "length": "9"}, "window was 50"),
    "other": ({"join": "and", "other": "chunked", "other_chunk": "50", "length": "9"}, "other_chunk was 50"),
    "cell": ({"cell": "40,2"}, "cell 40,2 lies outside"),
    "picked": ({"picked": "1", "section": "blocks"}, "picked 1 lies outside"),
    "tile": ({"section": "blocks", "length": "4096", "tile": "2"}, "tile was 2: more than 512"),
}


@pytest.mark.parametrize("name", FOLLOWS)
def test_what_follows_is_said(name):
    given, words = FOLLOWS[name]
    settled = settle(given)
    assert words in settled.notes[0].en and not settled.problems
    assert not settle(settled.link()).notes


@pytest.mark.parametrize("given", [{"rule": "foo"}, {"rule": "9**9**9 < 1"}, {"rule": ""}])
def test_a_rule_that_is_none_is_named_and_the_default_drawn(given):
    settled = settle({"mask": "own", **given})
    assert settled.problems[0].en.startswith("rule: at character ")
    assert settled.link() == {"mask": "own"}
    other = settle({"join": "or", "other": "own", "other_rule": given["rule"]})
    assert len(other.problems) == 1 and other.link() == {"join": "or", "other": "own"}


@pytest.mark.parametrize("given", [{"length": "131072"}, {"length": "131072", "mask": "own"}, {"length": "131072",
                                   "mask": "random_block"}, {"length": "131072", "mask": "sliding_window",
                                   "score_mod": "alibi"}])  # fmt: skip
def test_what_is_too_large_is_refused_with_the_nearest_length_that_fits(given):
    with pytest.raises(Refusal, match="Refused before allocating anything: a grid of 131,072 × 131,072"):
        guard.check(view(**given))
    with pytest.raises(Refusal) as caught:
        guard.check(view(**given))
    nearest = int(str(caught.value).rstrip(".").rsplit(" ", 1)[1].replace(",", ""))
    guard.check(view(**given | {"length": str(nearest)}))
    with pytest.raises(Refusal):
        guard.check(view(**given | {"length": str(nearest + 1)}))


def test_memory_counts_too_and_a_long_band_is_no_work():
    with pytest.raises(Refusal, match="free memory"):
        guard.check(view(), free_bytes=1000)
    guard.check(view(mask="sliding_window", length="131072"))


@pytest.mark.parametrize(
    "given",
    [
        {"length": "131072", "mask": "sliding_window", "window": "4"},
        {"length": "131072", "mask": "sliding_window", "window": "1500"},
        {"length": "65536", "key_length": "131072", "mask": "local_window", "align": "bottom_right"},
        {"length": "2048", "key_length": "131072", "mask": "causal"},
        {"length": "131072", "key_length": "100", "mask": "sliding_window", "window": "4"},
        {"length": "4096", "mask": "causal", "invert": "1"},
    ],
    ids=str,
)
def test_the_work_that_is_predicted_is_the_work_that_is_done(given, monkeypatch):
    made = view(**given)
    done = []

    def counted(mask, look, rows, cols):
        done.append((rows[1] - rows[0]) * (cols[1] - cols[0]))
        return region(mask, look, rows, cols)

    monkeypatch.setattr(surveys, "region", counted)
    survey(made.build_mask(), made.look)
    assert len(done) <= 1024 and max(done) <= surveys.PIECE  # blocks have a cost of their own
    predicted = guard.predict(made).cells
    assert sum(done) <= 1.05 * predicted and predicted <= max(1.3 * sum(done), guard.BLOCK_WORK * 100)


@pytest.mark.parametrize("given", [{"length": "1025"}, {"length": "8", "key_length": "9"}])
def test_reach_is_for_square_grids_that_are_not_too_large(given):
    with pytest.raises(Refusal, match="Reach needs as many keys as queries"):
        guard.check(view(section="reach", **given))
    guard.check(view(section="reach", length="1024"))


# Score changes


@pytest.mark.parametrize("key", SCORE_MODS)
def test_a_change_is_the_changed_scores_less_the_plain_ones_and_the_mask_takes_pairs_out(key):
    made = view(score_mod=key, mask="padding", sequence="2", join="and", other="causal", length="12")
    found = change(made)
    query, keys = query_and_key(12, 12, 0)
    plain = stage_map("scaled", query, keys).values[0]
    changed = stage_map("scaled", query, keys, score_mod=made.build_score_mod()).values[0]
    assert (found.difference == changed - plain).all()
    assert (found.difference != 0).any() == (key not in ("none", "temperature"))
    allowed = dense(made.build_mask(), 12, 12, batch=3)[2, 0].numpy()
    assert found.state is not None and ((found.state == 0) == allowed).all()
    assert (found.together[allowed] == changed[allowed]).all()


def test_the_mask_of_one_sequence_and_head_is_cut_out():
    made = view(mask="random_block", join="and", other="padding", head="3", sequence="1", length="24")
    whole = dense(made.build_mask(), 24, 24, batch=3, heads=HEADS)
    assert torch.equal(dense(drawn_mask(made), 24, 24)[0, 0], whole[1, 3])


# Timing


@pytest.mark.parametrize("key", ["causal", "sliding_window", "padding", "full"])
def test_both_ways_are_timed_and_give_the_same(key):
    made = view(mask=key, length="64", tile="16")
    found = timing.measure(made)
    assert found.skipping_s.minimum > 0 and found.whole_s.minimum > 0
    assert 3 <= found.skipping_s.runs == found.whole_s.runs <= timing.ROUNDS
    assert 0 < found.lower <= found.ratio <= found.upper


def test_ratios_are_taken_round_by_round_and_noise_is_told():
    """One slow round slows both: the ratio of the medians would be 3, that of each round is 2."""
    found = timing.Timing.of([1.0, 1.0, 3.0, 3.0, 1.0], [2.0, 3.0, 6.0, 6.0, 2.0])
    assert found.skipping_s.median == 1.0 and found.whole_s.median == 3.0
    assert found.ratio == 2.0 and (found.lower, found.upper) == (2.0, 2.5) and found.noisy
    quiet = [1.0, 1.01, 0.99, 1.0, 1.02]
    assert not timing.Timing.of(quiet, [2 * one for one in quiet]).noisy
    steady = timing.Timing.of(quiet, [1.0, 1.5, 1.0, 1.5, 1.0])
    assert steady.noisy and not steady.skipping_s.noisy


def test_both_ways_are_run_untimed_first_and_short_calls_repeated(monkeypatch):
    made, calls, timed = view(length="8", tile="8"), [], []
    kept, sampled = timing.trace, timing.rounds

    def counted(*args, **options):
        calls.append(options["skip"])
        return kept(*args, **options)

    def watched(clock, runners, most, budget_s):
        timed.append((set(calls), [runner.repeats for runner in runners], [len(runner.samples) for runner in runners]))
        return sampled(clock, runners, most, budget_s)

    monkeypatch.setattr(timing, "trace", counted)
    monkeypatch.setattr(timing, "rounds", watched)
    found = timing.measure(made)
    ((warmed, repeats, samples),) = timed
    assert warmed == {True, False} and samples == [0, 0]
    assert len(calls) >= sum(count * found.whole_s.runs for count in repeats) + 2


@pytest.mark.parametrize("given", [{"length": "4096", "tile": "8"}, {"length": "512", "tile": "8"}])
def test_what_would_take_long_is_not_timed(given):
    with pytest.raises(Refusal, match="Timed up to 2,048 tiles"):
        timing.measure(view(**given))


@pytest.mark.parametrize(
    "given",
    [
        {"length": "4096"},
        {"length": "4096", "mask": "own"},
        {"length": "8192"},
        {"length": "2048", "score_mod": "alibi"},
    ],
)
def test_what_is_predicted_is_not_exceeded_nor_far_from_it(given):
    made = view(**given)

    def run() -> None:
        survey(made.build_mask(), made.look)
        if made.score_mod != "none":
            change(made)

    peak, predicted = peak_bytes(run), guard.predict(made).total
    assert predicted / 8 <= peak <= predicted
