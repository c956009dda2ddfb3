"""The KV cache page's compute: a step is the whole's last rows, golden sizes, what fits, and settings that follow."""

import numpy as np
import pytest

from attnviz.hardware import HARDWARE
from attnviz.kv_cache_view.decode import decode, vectors
from attnviz.kv_cache_view.knobs import LAYOUT_KEYS, MODELS, MOST_SHOWN, VARIANT_KEYS
from attnviz.kv_cache_view.memory import ENDLESS, cache_bytes, curves, fits, taken, versions, weight_bytes
from attnviz.kv_cache_view.view import settle
from attnviz.presets import PARAMETERS, PRESETS
from pages.ui import kv_cache_charts

GIB, MIB, KIB = 2**30, 2**20, 2**10


def view(**given):
    settled = settle(given)
    assert not settled.problems and not settled.notes
    return settled.view


@pytest.mark.parametrize("layout", LAYOUT_KEYS)
@pytest.mark.parametrize("variant", VARIANT_KEYS)
def test_every_step_gives_the_rows_of_the_whole(variant, layout):
    answers = decode(view(variant=variant, layout=layout).scene)
    assert [answer.seen for answer in answers] == list(range(4, 13))
    for answer in answers:
        rows = np.nan_to_num(answer.weights)
        np.testing.assert_allclose(rows, answer.without[:, answer.step.start :], atol=1e-6)
        np.testing.assert_allclose(rows.sum(-1), 1, atol=1e-5)
        assert answer.output_error < 2e-6 and answer.weight_error < 1e-6
        assert answer.step.flops_without >= answer.step.flops
    kept = {"full": 12, "sliding_window": 4, "attention_sinks": 6}[layout]
    assert len(answers[-1].step.kept) == kept
    if layout != "full":
        assert np.isnan(answers[-1].weights).any()  # a key that has been dropped has no weight to show


@pytest.mark.parametrize("variant", VARIANT_KEYS)
def test_work_with_the_cache_is_one_token_and_without_all_of_them(variant):
    answers = decode(view(variant=variant).scene)
    assert answers[0].step.flops == answers[0].step.flops_without
    for answer in answers[1:]:
        assert answer.step.new == 1
        assert answer.step.flops_without / answer.step.flops == pytest.approx(answer.seen, rel=0.12)


def test_fewer_bits_move_the_output_by_as_much_as_they_round():
    errors = {key: decode(view(storage=key).scene)[-1].output_error for key in ("plain", "int8", "fp8", "int4")}
    assert errors["plain"] < 1e-5 < errors["int8"] < 0.02 < errors["fp8"] < errors["int4"] < 0.5


@pytest.mark.parametrize("variant", VARIANT_KEYS)
def test_vectors_are_those_of_the_cache(variant):
    scene = view(variant=variant, layout="sliding_window").scene
    answer = decode(scene)[-1]
    found = vectors(scene, answer, 3)
    assert (~np.isnan(found["query"][:, 0])).nonzero()[0].tolist() == [11]
    if variant == "mla":
        # The page names both parts of what lies there: a latent four heads wide, and a rotary key of half a head.
        assert (found["latent"].shape, found["rope"].shape) == ((12, 64), (12, 8))
        found["latent"] = np.concatenate((found["latent"], found["rope"]), axis=1)
    for name, kept in answer.after.contents(answer.step.output.dtype).items():
        assert (~np.isnan(found[name][:, 0])).nonzero()[0].tolist() == [8, 9, 10, 11]
        own = kept[0] if kept.dim() == 3 else kept[0, 3 // (8 // kept.shape[1])]
        np.testing.assert_array_equal(found[name][8:], own.numpy())


@pytest.mark.parametrize(
    ("given", "size", "unit"),
    [
        ({"model": "llama-2-7b", "context": "1"}, 512, KIB),
        ({"model": "llama-3-1-8b", "context": "1"}, 128, KIB),
        ({"model": "llama-3-1-8b"}, 16, GIB),
        ({"model": "llama-2-70b"}, 1.25, GIB),
        ({"model": "llama-3-1-70b"}, 40, GIB),
        ({"model": "llama-3-1-405b", "context": "1"}, 504, KIB),
        ({"model": "falcon-7b", "context": "1"}, 8, KIB),
        ({"model": "gpt-oss-120b", "context": "1"}, 72, KIB),
        ({"model": "deepseek-v3-r1-671b", "context": "1"}, 68.625, KIB),
        ({"model": "deepseek-v3-1"}, 10.72, GIB),
        ({"model": "gemma-3-1b"}, 139, MIB),
        ({"model": "gemma-3-1b", "windows": "0"}, 832, MIB),
        ({"model": "gemma-3-27b"}, 10.41, GIB),
        ({"model": "gemma-3-27b", "windows": "0"}, 62, GIB),
        ({"model": "gpt-oss-20b", "context": "8192", "batch": "32"}, 6.09, GIB),
        ({"model": "gpt-oss-20b", "context": "8192", "batch": "32", "windows": "0"}, 12, GIB),
        ({"model": "qwen3-0-6b"}, 4.38, GIB),
    ],
    ids=str,
)
def test_golden_sizes_by_link(given, size, unit):
    assert round(taken(view(**given)) / unit, 0 if size > 100 else 3 if size == 68.625 else 2) == size


@pytest.mark.parametrize(
    ("dtype", "share"), [("float32", 2), ("float16", 1), ("fp8", 1 / 2), ("int8", 1 / 2), ("int4", 1 / 4)]
)
def test_bytes_follow_the_type_of_the_cache(dtype, share):
    assert taken(view(cache_dtype=dtype)) == share * taken(view())


def test_every_model_has_its_weights_counted():
    assert set(MODELS) == set(PARAMETERS) == set(PRESETS) - {"all-minilm-l6-v2"}
    for key, preset in MODELS.items():
        # At least the attention of its layers, and no more than forty times that: experts are many.
        attention = preset.config
        own = preset.full_layers * attention.hidden_size**2
        assert PARAMETERS[key] > own
    # Names say how many; makers round.
    for key, billions in (("llama-2-70b", 70), ("falcon-40b", 40), ("gemma-3-27b", 27), ("deepseek-v3-r1-671b", 671)):
        assert PARAMETERS[key] == pytest.approx(billions * 1e9, rel=0.05)
    assert weight_bytes(view(model="llama-2-7b", weight_bits="4")) == 6_738_415_616 // 2


@pytest.mark.parametrize("model", MODELS)
def test_what_fits_fits_and_one_more_does_not(model):
    shown = view(model=model, gpus="4", batch="2", context="5000")
    weights = weight_bytes(shown)
    assert len(fits(shown)) == len(HARDWARE)
    for fit in fits(shown):
        assert fit.memory == 4 * fit.hardware.total_bytes
        assert fit.fits == (weights + taken(shown) <= fit.memory)
        for size, most in ((lambda n: (n, 2), fit.context), (lambda n: (5000, n), fit.batch)):
            for n, holds in ((most, True), (None if most is None else most + 1, False)):
                if n is not None and n < 2**16:
                    need = weights + cache_bytes(shown.preset, *size(n), "bfloat16", True)
                    assert (need <= fit.memory) == holds
        if fit.context is None:
            assert weights + cache_bytes(shown.preset, 1, 2, "bfloat16", True) > fit.memory


def test_what_fits_is_not_cut_at_what_can_be_typed():
    """Many cards hold more tokens than a link may ask for; where every layer has a window, any number of them."""
    many = {fit.hardware.key: fit.context for fit in fits(settle({"gpus": "16"}).view)}
    assert many["h200"] is not None and 2**24 < many["h200"] < many["b200"] < ENDLESS
    windows = {fit.context for fit in fits(settle({"model": "mistral-7b-v0-1", "gpus": "16"}).view)}
    assert windows == {ENDLESS} and kv_cache_charts.most(ENDLESS, str) == "∞"


@pytest.mark.parametrize("model", MODELS)
def test_growth_is_what_the_declarations_give_token_by_token(model):
    preset = MODELS[model]
    for windows in (True, False):
        for tokens in (1, 127, 128, 129, 5000, 40_000):
            want = preset.kv_cache_bytes(tokens, batch=3, dtype="float16", windows=windows)
            assert cache_bytes(preset, tokens, 3, "float16", windows) == want


def test_curves_are_the_declarations_and_grow_in_a_straight_line():
    found = {curve.key: curve for curve in curves(view(model="llama-3-1-8b"))}
    assert list(found) == ["own", "mha", "mqa", "mla"]
    assert found["mha"].size == 4 * found["own"].size == 32 * found["mqa"].size
    assert found["mla"].size * 2048 == found["own"].size * 576
    for curve in found.values():
        assert np.ptp(np.array(curve.sizes) / np.array(curve.contexts)) == 0
    windowed = {curve.key: curve for curve in curves(view(model="gpt-oss-20b"))}
    assert windowed["ignored"].size > windowed["own"].size
    other = {curve.key: curve for curve in curves(view(model="gpt-oss-20b", windows="0"))}
    assert (other["own"].size, other["kept"].size) == (windowed["ignored"].size, windowed["own"].size)
    assert "gqa" in versions(view(model="deepseek-v3-1")) and "mla" not in versions(view(model="deepseek-v3-1"))


FOLLOWERS = {
    "prompt": (
        {"text": "a b c", "prompt": "9"},
        {"prompt": 2, "step": 1},
        "prompt was 9, more than the sentence leaves (tokens shown: 3)",
    ),
    "step": (
        {"prompt": "10", "step": "5"},
        {"step": 2},
        "step was 5, more than the sentence leaves (tokens shown: 12)",
    ),
    "head": ({"heads": "4", "head": "7"}, {"head": 3}, "head 7 does not exist among 4 heads"),
    "kv_heads": ({"heads": "6", "kv_heads": "4"}, {"kv_heads": 3}, "kv_heads must divide heads: 6 heads allow"),
    "cell": ({"cell": "1,99,0"}, {"cell": ()}, "cell 1,99,0 lies outside the maps"),
}


@pytest.mark.parametrize("name", FOLLOWERS)
def test_what_follows_is_said(name):
    given, want, words = FOLLOWERS[name]
    settled = settle(given)
    assert words in settled.notes[0].en and not settled.problems
    assert {key: getattr(settled.view, key) for key in want} == want
    assert name not in settled.link() or settled.link()[name] != given[name]


@pytest.mark.parametrize("text", ["", "one", "a b", "猫", "x " * 500])
def test_any_sentence_can_be_decoded_without_a_remark(text):
    shown = view(text=text)
    answers = decode(shown.scene)
    assert answers[shown.step].seen == min(shown.prompt + shown.step, len(shown.tokens)) <= MOST_SHOWN
    assert settle({"text": text}).link() == ({"text": text})


def test_heads_that_a_variant_fixes_are_no_setting():
    for variant, heads in (("mha", 8), ("mqa", 1)):
        settled = settle({"variant": variant, "kv_heads": "4"})
        assert settled.view.kv_heads == heads and settled.link() == {"variant": variant}
