"""Snippets: run as a person would run them, their tensors are the page's."""

import ast
import runpy

import pytest
import torch

from attnviz import inputs
from attnviz.backends import BACKENDS
from attnviz.masks import MASKS, dense
from attnviz.positions import POSITIONS
from attnviz.snippet import attention_snippet
from attnviz.stages import Call, rows_of
from attnviz.text import Refusal
from attnviz.variants import VARIANTS
from tests.test_masks import SETTINGS

WIDTH = 32
WORDS = ("the", "cat", "<b>", "猫", "'", '"""', "\\", "$x$", "\t", "the", "{x}", "\ud800")


def config(key, heads=4):
    sizes = {"num_key_value_heads": 2} if key == "gqa" else {}
    return VARIANTS[key].config(hidden_size=WIDTH, num_attention_heads=heads, head_dim=8, **sizes)


def run(tmp_path, sizes, **settings):
    path = tmp_path / "view.py"
    text = attention_snippet(sizes, **settings)
    path.write_text(text, encoding="utf-8")
    return runpy.run_path(str(path)), text


def page(key, sizes, *, seed, q_len, kv_len, tokens=None, context=None, cross=False, dtype="float32"):
    """Give q, k, v as the attention page makes them."""

    def vectors(words, length, side):
        if words is None:
            return inputs.random_normal((1, length, WIDTH), seed + side)
        return inputs.token_vectors(words, WIDTH, seed)[None]

    other = vectors(context, kv_len, 1) if cross else None
    weights = VARIANTS[key].weights(sizes, seed=seed)
    made = VARIANTS[key].project(sizes, weights, vectors(tokens, q_len, 0), context=other)
    return tuple(tensor.to(getattr(torch, dtype)) for tensor in made)


def close(got, want, dtype=torch.float32):
    torch.testing.assert_close(got, want, rtol=0, atol=16 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mask", ["full", "causal", "padding"])
@pytest.mark.parametrize("key", ["mha", "gqa", "mqa"])
def test_every_variant_and_backend(key, mask, backend, tmp_path, capsys):
    sizes, shape = config(key), {"seed": 3, "q_len": 12, "kv_len": 12, "tokens": WORDS}
    settings = {"lengths": (5,)} if mask == "padding" else {}
    got, text = run(tmp_path, sizes, mask=mask, mask_settings=settings, backend=backend, **shape)
    query, key_, value = page(key, sizes, **shape)
    want = BACKENDS[backend].attend(query, key_, value, allowed=MASKS[mask].build(**settings))
    close(got["q"], query)
    close(got["output"], want.output)
    if backend == "eager":
        close(got["weights"], want.weights)
        close(got["scaled"], want.scores)
    assert ("is_causal=True" in text) == (backend == "sdpa" and mask == "causal")
    assert "torch.Size([1, 4, 12, 8])" in capsys.readouterr().out


@pytest.mark.parametrize("rope", [0, 2, 6, 8])
@pytest.mark.parametrize("position", ["none", "rope", "sinusoidal"])
@pytest.mark.parametrize("cross", [False, True])
def test_keys_made_of_a_latent(cross, position, rope, tmp_path):
    mla = VARIANTS["mla"]
    sizes = mla.config(
        hidden_size=WIDTH, num_attention_heads=3, head_dim=8, v_head_dim=8, kv_lora_rank=5, qk_rope_head_dim=rope
    )
    shape = {"seed": 3, "q_len": 12, "kv_len": 9, "cross": cross} | ({} if cross else {"kv_len": 12})
    got, _ = run(tmp_path, sizes, mask="causal", align="bottom_right", position=position, **shape)
    x, y = (inputs.random_normal((1, shape[side], WIDTH), 3 + i) for i, side in enumerate(("q_len", "kv_len")))
    encode = None if position == "none" else POSITIONS[position].build()
    want = mla.attend(
        sizes, mla.weights(sizes, seed=3), x, context=y if cross else None, allowed=MASKS["causal"].build(),
        align="bottom_right", position=encode, backend="eager",
    )  # fmt: skip
    close(got["weights"], want.core.weights)
    close(got["output"], want.core.output)


@pytest.mark.parametrize("align", ["top_left", "bottom_right"])
@pytest.mark.parametrize(("q_len", "kv_len"), [(7, 9), (9, 7), (300, 300)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_cross_attention_with_both_alignments(backend, q_len, kv_len, align, tmp_path):
    sizes, shape = config("gqa"), {"seed": 0, "q_len": q_len, "kv_len": kv_len, "cross": True}
    shape["context"] = tuple(WORDS[i % len(WORDS)] for i in range(kv_len))
    got, _ = run(tmp_path, sizes, mask="causal", align=align, backend=backend, scale=0.25, **shape)
    query, key, value = page("gqa", sizes, **shape)
    want = BACKENDS[backend].attend(query, key, value, allowed=MASKS["causal"].build(), align=align, scale=0.25)
    close(got["output"], want.output)


@pytest.mark.parametrize("key", MASKS)
def test_the_code_of_a_mask_is_its_rule(key, tmp_path):
    for settings in SETTINGS[key]:
        for q_len, kv_len, align in ((16, 16, "top_left"), (7, 19, "bottom_right"), (19, 7, "bottom_right")):
            mask = MASKS[key].build(**settings)
            sizes, shape = config("mha"), {"seed": 0, "q_len": q_len, "kv_len": kv_len, "cross": True}
            got, _ = run(tmp_path, sizes, mask=key, mask_settings=settings, align=align, **shape)
            want = dense(mask, q_len, kv_len, align=align, heads=4)[0]
            if mask.is_full:
                assert "allowed" not in got
            else:
                assert torch.equal(got["allowed"].expand(want.shape), want)
            core = BACKENDS["eager"].attend(*page("mha", sizes, **shape), allowed=mask, align=align)
            close(got["weights"], core.weights)
            close(got["output"], core.output)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_every_dtype(dtype, backend, tmp_path):
    sizes, shape = config("gqa"), {"seed": 1, "q_len": 12, "kv_len": 12, "tokens": WORDS, "dtype": dtype}
    got, _ = run(tmp_path, sizes, mask="causal", backend=backend, **shape)
    want = BACKENDS[backend].attend(*page("gqa", sizes, **shape), allowed=MASKS["causal"].build()).output
    assert got["output"].dtype == getattr(torch, dtype)
    # The projections are float32, whatever comes after.
    close(got["output"].double(), want.double(), torch.float32 if dtype == "float64" else want.dtype)


@pytest.mark.parametrize("backend", BACKENDS)
def test_dropout_drops_the_weights_that_the_page_drops(backend, tmp_path):
    sizes, shape = config("gqa"), {"seed": 2, "q_len": 12, "kv_len": 12, "tokens": WORDS}
    got, _ = run(tmp_path, sizes, mask="causal", backend=backend, dropout=0.35, **shape)
    call = Call(*page("gqa", sizes, **shape), MASKS["causal"].build(), dropout=0.35, seed=2)
    rows = rows_of(call, range(4), 0, 12)
    assert torch.equal(got["weights"] == 0, rows.weights == 0)
    close(got["weights"], rows.weights)
    close(got["output"], rows.output)


def test_a_sentence_that_goes_round_is_written_once(tmp_path):
    sizes, words = config("mha"), tuple("abca"[i % 4] for i in range(1000))
    got, text = run(tmp_path, sizes, seed=0, q_len=1000, kv_len=1000, tokens=words, backend="sdpa")
    assert tuple(got["words"]) == words and len(text) < 3000
    for words in (("a",), ("a", "a", "a"), ("a", "b", "a"), ("a", "b", "c")):
        got, _ = run(tmp_path, sizes, seed=0, q_len=len(words), kv_len=len(words), tokens=words)
        assert tuple(got["words"]) == words


def test_a_script_imports_torch_alone():
    text = attention_snippet(config("gqa"), seed=0, q_len=12, kv_len=12, tokens=WORDS, mask="tree", dropout=0.1)
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert [ast.unparse(node) for node in imports] == ["import torch"]


def test_misuse_is_named():
    sizes, shape = config("mha"), {"seed": 0, "q_len": 3, "kv_len": 3}
    with pytest.raises(Refusal, match="backend must be one of eager, sdpa, flash for a snippet, got 'abacus'"):
        attention_snippet(sizes, backend="abacus", **shape)
    with pytest.raises(Refusal, match="dtype must be one of"):
        attention_snippet(sizes, dtype="int8", **shape)
    with pytest.raises(ValueError, match="tokens must be 3 tokens, got 1"):
        attention_snippet(sizes, tokens=("a",), **shape)
    with pytest.raises(ValueError, match="v_head_dim must equal head_dim"):
        attention_snippet(VARIANTS["mha"].config(v_head_dim=3), **shape)
    with pytest.raises(ValueError, match="sink must be off"):
        attention_snippet(VARIANTS["mha"].config(sink=True), **shape)
    with pytest.raises(ValueError, match="window"):
        attention_snippet(sizes, mask="sliding_window", mask_settings={"window": 0}, **shape)
    with pytest.raises(KeyError, match="unknown mask"):
        attention_snippet(sizes, mask="veil", **shape)
