"""What a set of settings means: any text becomes a view, what was wrong is named, and a link says it all again."""

import random

import numpy as np
import pytest
import torch

from attnviz import view_run
from attnviz.backends import BACKENDS
from attnviz.census import census, row_detail
from attnviz.families import FAMILIES, variant_key
from attnviz.inputs import token_vectors
from attnviz.knobs import Choice, Flag, Integer, Lengths, Number
from attnviz.masks import MASKS, Mask
from attnviz.positions import POSITIONS
from attnviz.score_mods import SCORE_MODS
from attnviz.settings import KNOBS, OWNERS, every_name, mask_knobs, own_knobs
from attnviz.stages import fused
from attnviz.text import LANGUAGES
from attnviz.variants import VARIANTS
from attnviz.view import View, repeat, settle
from attnviz.view_run import WIDTH, make_call, make_config, run
from tests.reference import grid, whole
from tests.reference import make_call as draw_call

HOSTILE_VALUES = (
    "", "hello", "-1", "0", "1e400", "nan", "inf", "9" * 100, "1.5", "1,2,3,4,5", "<script>alert(1)</script>", "{0}",
    "%s", "../../etc/passwd", "None", "٣", "²", "\x00", "\ud800", "true", "1_0", " 7 ", "'; DROP TABLE x", "🙂", "-0",
)  # fmt: skip


def test_no_settings_at_all_are_the_defaults():
    settled = settle({})
    assert settled.problems == () and settled.notes == ()
    assert settled.link() == {}
    assert settled.view.length == settled.view.key_length == 12
    assert settled.view.kv_heads == settled.view.heads == 4
    assert settled.view.cell == ()
    assert settled.view.factor == 64**-0.5


@pytest.mark.parametrize("name", sorted(every_name()))
def test_any_value_gives_a_view_and_at_most_one_sentence(name):
    around = next(
        ({choice: key} for choice, keys in OWNERS.items() for key in keys if name in own_knobs(choice, key)), {}
    )
    for value in HOSTILE_VALUES:
        settled = settle(around | {name: value})
        assert isinstance(settled.view, View)
        settled.view.build_mask()
        said = [*settled.problems, *settled.notes]
        assert len(settled.problems) <= 1
        for text in said:
            for language in LANGUAGES:
                assert len(text.say(language)) < 400  # the heads are 64 options
        for text in settled.problems:
            assert name.removeprefix("mask_").removeprefix("score_mod_") in text.en
        again = settle(settled.link())
        assert not again.problems
        assert again.view == settled.view


@pytest.mark.parametrize("junk", [None, 3, [], {}, object(), float("nan"), (1, 2), b"4", True])
def test_values_that_are_no_text_are_no_trouble_either(junk):
    for name in KNOBS:
        settle({name: junk})


def test_a_name_that_is_no_setting_is_named_and_cut():
    settled = settle({"d_K": "64", "x" * 5000: "1"})
    assert [text.en for text in settled.problems] == [
        "'d_K' is not a setting of this page.",
        f"'{'x' * 40}' is not a setting of this page.",
    ]


def test_the_knobs_of_another_mask_are_no_mistake():
    assert settle({"mask": "causal", "window": "3"}).problems == ()


def random_settings(seed: int) -> dict[str, str]:
    draw = random.Random(seed)
    heads = draw.choice((1, 2, 3, 6, 8))
    mask = draw.choice(list(MASKS))
    position, score_mod = draw.choice(list(POSITIONS)), draw.choice(list(SCORE_MODS))
    variant = draw.choice(list(FAMILIES))
    given = {"variant": variant, "heads": str(heads), "mask": mask, "position": position, "score_mod": score_mod}
    own = (
        mask_knobs(mask)
        | own_knobs("variant", variant)
        | own_knobs("position", position)
        | own_knobs("score_mod", score_mod)
    )
    for name, knob in (KNOBS | own).items():
        if name in given or draw.random() < 0.4:
            continue
        if isinstance(knob, Choice):
            given[name] = draw.choice(list(knob.options))
        elif isinstance(knob, Flag):
            given[name] = draw.choice(("0", "1"))
        elif isinstance(knob, Lengths):
            given[name] = ",".join(str(draw.randint(0, 6)) for _ in range(draw.randint(1, 3)))
        elif isinstance(knob, Integer):
            given[name] = str(draw.randint(knob.low, min(knob.high, 40)))
        elif isinstance(knob, Number):
            given[name] = f"{draw.uniform(knob.low, min(knob.high, 4)):.4f}"
    return given


@pytest.mark.parametrize("seed", range(60))
def test_a_link_says_the_whole_view_again(seed):
    settled = settle(random_settings(seed))
    again = settle(settled.link())
    assert again.view == settled.view
    assert again.problems == () and again.notes == ()
    assert again.link() == settled.link()
    assert all(isinstance(text, str) for text in settled.link().values())


@pytest.mark.parametrize(
    ("heads", "kv_heads", "used"),
    [(3, 2, 1), (33, 2, 1), (8, 3, 2), (8, 64, 8), (64, 63, 32), (1, 2, 1), (12, 5, 4)],
)
def test_kv_heads_follow_the_heads(heads, kv_heads, used):
    settled = settle({"heads": str(heads), "kv_heads": str(kv_heads)})
    assert settled.view.kv_heads == used
    (note,) = settled.notes
    assert f"{heads} heads allow" in note.en and f"got {kv_heads}" in note.en and f"using {used}" in note.en
    assert "kv_heads" in note.zh


def test_the_heads_of_mla_share_nothing():
    settled = settle({"variant": "mla", "heads": "6"})
    assert (settled.view.kv_heads, settled.view.layer) == (6, "mla") and not settled.notes
    settled = settle({"variant": "mla", "heads": "6", "kv_heads": "2"})
    assert settled.view.kv_heads == 6 and "kv_heads" not in settled.link()
    assert [note.en for note in settled.notes] == [
        "kv_heads was 2; with MLA every head has keys and values of its own, so it is 6."
    ]


@pytest.mark.parametrize(
    ("d_k", "rope", "used"), [(64, None, 20), (1024, None, 64), (1, None, 0), (8, 9, 8), (8, 8, 8)]
)
def test_the_rotary_part_is_part_of_d_k(d_k, rope, used):
    settled = settle({"variant": "mla", "d_k": str(d_k)} | ({} if rope is None else {"rope": str(rope)}))
    assert dict(settled.view.variant_settings) == {"latent": 512, "rope": used}
    assert [note.en for note in settled.notes] == (
        [f"rope was {rope}, which is more than d_k = {d_k}; using {used}."] if rope == 9 else []
    )


def test_the_worked_example_makes_no_latent():
    settled = settle({"variant": "mla", "input": "worked"})
    assert settled.view.variant == "grouped" and settled.link() == {"input": "worked"}
    assert "the worked example has none" in settled.notes[0].en and "手算示例" in settled.notes[0].zh
    assert settle({"latent": "7"}).problems == ()  # the knob of a variant that is not chosen


@pytest.mark.parametrize("rope", ["0", "6", "16"])
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("attention", ["self", "cross"])
def test_a_view_of_mla_is_the_layer_that_the_variant_computes(attention, position, rope):
    given = {"variant": "mla", "attention": attention, "position": position, "rope": rope, "d_k": "16", "latent": "9"}
    view = settle(given | {"seed": "3", "length": "7", "align": "bottom_right"}).view
    call = make_call(view)
    sizes, mla = make_config(view), VARIANTS["mla"]
    assert (sizes.kv_lora_rank, sizes.qk_rope_head_dim, sizes.head_dim) == (9, int(rope), 16)
    x, y = (
        token_vectors(view.tokens(side) or (), WIDTH, 3)[None] if attention == "cross" or side == "query" else None
        for side in ("query", "key")
    )
    want = mla.attend(
        sizes, mla.weights(sizes, seed=3), x, context=y, allowed=view.build_mask(), align="bottom_right",
        position=view.build_position(), backend="eager",
    ).core  # fmt: skip
    got = BACKENDS["eager"].attend(call.query, call.key, call.value, allowed=call.mask, align=call.align)
    torch.testing.assert_close(got.weights, want.weights)
    torch.testing.assert_close(got.output, want.output)
    assert ("query_turned" in call.stages) == (position == "rope") and call.stages == view.stages


@pytest.mark.parametrize("heads", range(1, 65))
def test_every_divisor_is_taken_as_it_is(heads):
    for kv_heads in (n for n in range(1, heads + 1) if heads % n == 0):
        settled = settle({"heads": str(heads), "kv_heads": str(kv_heads)})
        assert settled.view.kv_heads == kv_heads and not settled.notes
        assert settled.view.layer == {1: "mqa", heads: "mha"}.get(kv_heads, "gqa")
        assert variant_key(heads, kv_heads) == settled.view.layer


def test_a_window_follows_the_keys():
    settled = settle({"mask": "sliding_window", "window": "20", "length": "9"})
    assert dict(settled.view.mask_settings) == {"window": 9}
    assert "window was 20" in settled.notes[0].en and "9 keys" in settled.notes[0].en
    # By itself the default shrinks without a word.
    assert settle({"mask": "sliding_window", "length": "3"}).notes == ()
    # With cross attention the keys are the other side.
    cross = {"mask": "sliding_window", "window": "20", "length": "9", "attention": "cross", "key_length": "30"}
    assert settle(cross).notes == ()


def test_a_head_that_is_gone_is_no_longer_shown():
    settled = settle({"heads": "2", "head": "3"})
    assert settled.view.head == "all" and settled.view.drawn_heads == (0, 1)
    assert settled.notes[0].en == "head 3 does not exist among 2 heads; showing all."
    assert settle({"heads": "3", "head": "3"}).view.head == "all"
    assert settle({"heads": "4", "head": "3"}).view.drawn_heads == (3,)


@pytest.mark.parametrize("cell", ["4,0,0", "0,12,0", "0,0,12", "3"])
def test_a_cell_outside_is_no_longer_selected(cell):
    settled = settle({"cell": cell})
    assert settled.view.cell == () and len(settled.notes) == 1
    assert cell in settled.notes[0].en
    assert settle({"cell": "3,11,11"}).view.cell == (3, 11, 11)
    assert settle({"cell": "3,11"}).view.cell == (3, 11)


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_settings_that_make_no_mask_together_fall_back(backend):
    settled = settle({"mask": "tree", "parents": "5,1", "backend": backend})
    (problem,) = settled.problems
    assert "parents" in problem.en and "parents" in problem.zh
    settled.view.build_mask()
    assert settled.values["parents"] == settled.defaults["parents"]
    assert "parents" not in settled.link()


@pytest.mark.parametrize(("scale", "factor"), [("auto", 0.25), ("one", 1.0), ("custom", 0.5)])
def test_the_factor_of_each_scale(scale, factor):
    assert settle({"d_k": "16", "scale": scale, "scale_value": "0.5"}).view.factor == factor


def test_the_length_of_a_sentence_is_its_own_until_another_is_set():
    assert settle({"text": "a b c"}).view.length == 3
    assert settle({"text": ""}).view.length == 1
    view = settle({"text": "a b c", "length": "7"}).view
    assert view.tokens() == ("a", "b", "c", "a", "b", "c", "a")
    assert settle({"input": "normal"}).view.length == 32
    assert settle({"input": "normal"}).view.tokens() is None


def test_the_sides_of_cross_attention_have_their_own_tokens():
    view = settle({"attention": "cross", "text": "a b", "context": "字词", "key_length": "3"}).view
    assert view.tokens("query") == ("a", "b")
    assert view.tokens("key") == ("字", "词", "字")
    assert settle({"text": "a b", "context": "字词"}).view.tokens("key") == ("a", "b")


def test_tokens_repeat_to_any_length():
    for length in range(8):
        assert repeat(("x", "y", "z"), length) == tuple("xyzxyzxy"[:length])
        assert repeat((), length) == ("",) * length


def test_a_call_has_the_shapes_of_its_view():
    view = settle(
        {"attention": "cross", "length": "5", "key_length": "7", "heads": "6", "kv_heads": "2", "d_k": "10",
         "dtype": "bfloat16", "align": "bottom_right", "dropout": "0.1", "seed": "4", "backend": "flash"}
    ).view  # fmt: skip
    call = make_call(view)
    assert call.query.shape == (1, 6, 5, 10)
    assert call.key.shape == call.value.shape == (1, 2, 7, 10)
    assert call.query.dtype == torch.bfloat16
    assert (call.align, call.dropout, call.seed, call.backend) == ("bottom_right", 0.1, 4, "flash")


@pytest.mark.parametrize("setting", ["mask", "scale", "stage", "head", "dropout", "align", "backend", "log"])
def test_what_does_not_change_the_input_leaves_the_tensors(setting):
    other = {
        "mask": "full", "scale": "one", "stage": "scores", "head": "1", "dropout": "0.5", "align": "bottom_right",
        "backend": "sdpa", "log": "1",
    }  # fmt: skip
    plain, changed = make_call(settle({}).view), make_call(settle({setting: other[setting]}).view)
    assert plain.query is changed.query and plain.value is changed.value


@pytest.mark.parametrize("setting", [{"seed": "1"}, {"text": "other words here now ."}, {"input": "normal"}])
def test_what_is_the_input_changes_the_tensors(setting):
    length = {"length": "6"}
    plain, changed = make_call(settle(length).view), make_call(settle(length | setting).view)
    assert not torch.equal(plain.query, changed.query)


def test_random_keys_of_cross_attention_come_from_numbers_of_their_own():
    settings = {"input": "normal", "length": "6", "key_length": "6"}
    own, cross = (make_call(settle(settings | {"attention": kind}).view) for kind in ("self", "cross"))
    assert torch.equal(own.query, cross.query)
    assert not torch.equal(own.key, cross.key) and not torch.equal(own.value, cross.value)


def test_a_longer_sequence_begins_as_the_shorter_one():
    short, long = (make_call(settle({"length": length}).view) for length in ("5", "9"))
    torch.testing.assert_close(long.query[:, :, :5], short.query)


def test_entries_have_unit_variance_so_that_scores_spread_like_the_root_of_d_k():
    call = make_call(settle({"input": "normal", "length": "256", "d_k": "256"}).view)
    for tensor in (call.query, call.key, call.value):
        assert float(tensor.double().std()) == pytest.approx(1.0, abs=0.03)


def test_what_is_only_drawn_is_not_computed_again():
    view = settle({"backend": "sdpa", "length": "6"}).view
    first = run(view)
    again = run(settle({"backend": "sdpa", "length": "6", "stage": "scores", "cell": "1,1", "log": "1"}).view)
    assert again[1] is first[1]
    assert run(settle({"backend": "sdpa", "length": "6", "scale": "one"}).view)[1] is not first[1]


def test_large_tensors_are_not_kept(monkeypatch):
    monkeypatch.setattr(view_run, "KEPT_ENTRIES", 100)
    before = view_run._tensors.cache_info().currsize, view_run._run.cache_info().currsize
    run(settle({"length": "37", "d_k": "3"}).view)
    assert (view_run._tensors.cache_info().currsize, view_run._run.cache_info().currsize) == before


def test_a_census_of_too_many_scores_is_left_out(monkeypatch):
    view = settle({"length": "10", "heads": "2"}).view
    monkeypatch.setattr(view_run, "MOST_COUNTED", 199)
    assert view_run.census(view) is None
    monkeypatch.setattr(view_run, "MOST_COUNTED", 200)
    assert view_run.census(view) is not None


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("block", [7, 2**21])
def test_a_census_counts_rows_and_weights(backend, block, monkeypatch):
    monkeypatch.setattr("attnviz.stages.BLOCK_SCORES", block)
    mask = MASKS["padding"].build(lengths=(0,))
    call = draw_call(5, 6, dtype=torch.float32, mask=mask, backend=backend)
    ran = fused(call)
    counted = census(call, ran)
    assert (counted.no_key, counted.not_finite, counted.underflowed) == (20, 0, 0)
    call = draw_call(5, 6, dtype=torch.float32, mask=MASKS["causal"].build(), backend=backend, scale=400.0)
    ran = fused(call)
    counted = census(call, ran)
    exact = whole(call, "weights").values
    lost = int(((exact < 1e-46) & grid(call)).sum())
    assert lost > 0 and abs(counted.underflowed - lost) <= 2  # of weights about the smallest number none can be sure
    assert counted.no_key == 0
    assert (counted.difference is None) == (backend == "eager")
    if counted.difference is not None:
        assert counted.difference < 1e-3


@pytest.mark.parametrize(("mask", "pairs"), [("full", 4 * 30), ("causal", 4 * 15)])
def test_a_census_counts_pairs_of_every_head(mask, pairs, monkeypatch):
    monkeypatch.setattr("attnviz.stages.BLOCK_SCORES", 50)
    assert census(draw_call(5, 6, mask=MASKS[mask].build()), None).pairs == pairs


def test_a_census_counts_pairs_of_a_mask_per_head():
    mask = Mask(lambda b, h, q, k: (k < h) & (q == q), per_head=True)
    assert census(draw_call(5, 6, mask=mask), None).pairs == 5 * (0 + 1 + 2 + 3)


@pytest.mark.parametrize("backend", ["sdpa", "flash"])
def test_a_difference_is_measured_and_not_assumed(backend):
    call = draw_call(8, 8, dtype=torch.float32, mask=MASKS["causal"].build(), backend=backend)
    ran = fused(call)
    assert census(call, ran).difference < 1e-5
    spoilt = ran.output.clone()
    spoilt[0, 3, 5, 2] += 0.25
    assert census(call, ran._replace(output=spoilt)).difference == pytest.approx(0.25, abs=1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_row_in_detail(backend):
    call = draw_call(7, 9, mask=MASKS["causal"].build(), align="bottom_right", backend=backend)
    want = whole(call, "weights")
    for head, row in ((0, 0), (3, 6)):
        detail = row_detail(call, head, row, fused(call))
        weights = want.values[head, row]
        np.testing.assert_allclose(detail.weights.numpy(), weights, atol=1e-6)
        np.testing.assert_array_equal(detail.allowed.numpy(), want.counts[head, row])
        np.testing.assert_allclose(detail.scores.numpy(), whole(call, "scaled").values[head, row], atol=1e-6)
        seen = weights[weights > 0]
        entropy = -(seen * np.log(seen)).sum()
        assert detail.total == pytest.approx(1.0, abs=1e-6)
        assert detail.entropy == pytest.approx(entropy, abs=1e-5)
        assert detail.effective_keys == pytest.approx(np.exp(entropy), abs=1e-4)


def test_equal_weights_count_as_so_many_keys():
    call = draw_call(4, 8, mask=MASKS["full"].build(), scale=0.0)
    assert row_detail(call, 0, 0).effective_keys == pytest.approx(8.0)


def test_a_row_without_a_key_and_a_row_out_of_range():
    empty = row_detail(draw_call(3, 3, mask=MASKS["padding"].build(lengths=(0,))), 0, 1)
    assert (empty.total, empty.entropy, empty.effective_keys) == (0.0, 0.0, 0.0)
    broken = row_detail(draw_call(3, 3, dtype=torch.float16, scale=1e6), 0, 1)
    assert np.isnan(broken.total) and np.isnan(broken.effective_keys)


def test_a_chinese_note_names_settings_by_their_labels():
    (note,) = settle({"input": "worked", "position": "sinusoidal"}).notes
    assert note.zh == "“正弦位置编码”要加在 token 向量上，而手算示例没有 token 向量；位置编码改为“无”。"
    assert "position sinusoidal" in note.en and "using none" in note.en
