"""Latent attention: two forms of one function, a cache that is never decompressed, and DeepSeek's own layer."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers.models.deepseek_v3.configuration_deepseek_v3 import DeepseekV3Config
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention, DeepseekV3RotaryEmbedding

from attnviz.cost import cost
from attnviz.masks import MASKS
from attnviz.positions import POSITIONS
from attnviz.score_mods import SCORE_MODS
from attnviz.text import Refusal
from attnviz.variants import VARIANTS
from tests.peak import peak_bytes

MLA = VARIANTS["mla"]
SMALL = {"hidden_size": 24, "num_attention_heads": 4, "head_dim": 10, "v_head_dim": 5, "kv_lora_rank": 12}
CAUSAL = {"allowed": MASKS["causal"].build(), "align": "bottom_right"}


def tokens(batch, length, width=24):
    return torch.randn(batch, length, width, dtype=torch.float64)


def double(config, seed=0):
    weights = MLA.weights(config, seed=seed, dtype=torch.float64)
    return weights | {n: torch.rand_like(weights[n]) + 0.5 for n in MLA.vectors(config)}


@pytest.mark.parametrize("mod", SCORE_MODS)
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("backend", MLA.backends)
@pytest.mark.parametrize("sizes", [{}, {"qk_rope_head_dim": 0}, {"qk_rope_head_dim": 10}, {"q_lora_rank": 7}])
def test_both_forms_are_the_same_function(mod, position, backend, sizes):
    terms = {
        "score_mod": SCORE_MODS[mod].build(),
        "position": POSITIONS[position].build(),
        "backend": backend,
        **CAUSAL,
    }
    forms = [MLA.config(form=form, **SMALL, **sizes) for form in ("expanded", "absorbed", "auto")]
    weights = double(forms[0])
    past, x = tokens(2, 7), tokens(2, 3)
    cache = MLA.attend(forms[0], weights, past, **terms).cache
    runs = [MLA.attend(config, weights, x, cache=cache, **terms) for config in forms]
    for run in runs[1:]:
        torch.testing.assert_close(run.output, runs[0].output, rtol=0, atol=1e-10)
        if backend == "eager":
            torch.testing.assert_close(run.core.scores, runs[0].core.scores, rtol=0, atol=1e-10)
    assert [run.core.kernel.startswith("absorbed · ") for run in runs[:2]] == [False, True]
    for run in runs[1:]:
        torch.testing.assert_close(run.core.output, runs[0].core.output, rtol=0, atol=1e-10)
        torch.testing.assert_close(run.core.logsumexp, runs[0].core.logsumexp, rtol=0, atol=1e-10)


def published(**sizes):
    """Give a layer of DeepSeek's published implementation, its configuration and ours."""
    theirs = DeepseekV3Config(
        hidden_size=24, num_attention_heads=4, num_key_value_heads=4, kv_lora_rank=12, qk_rope_head_dim=4,
        qk_nope_head_dim=6, v_head_dim=5, attention_bias=False, max_position_embeddings=64, **sizes,
    )  # fmt: skip
    theirs._attn_implementation = "eager"
    ours = MLA.config(**SMALL, qk_rope_head_dim=4, q_lora_rank=theirs.q_lora_rank or 0)
    return DeepseekV3Attention(theirs, 0).double().eval(), DeepseekV3RotaryEmbedding(theirs), ours


@pytest.mark.parametrize("rank", [None, 9])
def test_it_is_the_published_layer(rank):
    layer, rotary, config = published(q_lora_rank=rank)
    weights = double(config)
    heads, nope = 4, config.qk_nope_head_dim
    up = torch.cat([weights[n].unflatten(1, (heads, -1)) for n in ("key", "value")], dim=2).flatten(1)
    given = {
        "kv_a_proj_with_mqa": torch.cat((weights["latent"], weights["rope_key"]), dim=1).T,
        "kv_a_layernorm": weights["latent_norm"],
        "kv_b_proj": up.T,
        "o_proj": weights["output"].T,
        "q_proj" if rank is None else "q_b_proj": weights["query"].T,
    }
    if rank is not None:
        given |= {"q_a_proj": weights["query_down"].T, "q_a_layernorm": weights["query_norm"]}
    layer.load_state_dict({f"{name}.weight": tensor for name, tensor in given.items()})
    x = tokens(2, 9)
    mask = torch.full((9, 9), float("-inf"), dtype=torch.float64).triu(1)[None, None]
    with torch.no_grad():
        want = layer(x, rotary(x, torch.arange(9)[None]), mask)[0]
    rope = POSITIONS["rope"].build(layout="interleaved")
    for form in ("expanded", "absorbed"):
        shaped = MLA.config(**SMALL, qk_rope_head_dim=4, q_lora_rank=rank or 0, form=form)
        got = MLA.attend(shaped, weights, x, position=rope, allowed=MASKS["causal"].build()).output
        torch.testing.assert_close(got, want, rtol=0, atol=1e-6)  # their angles are float32
    assert sum(p.numel() for p in layer.parameters()) == MLA.parameters(config)
    assert nope == 6


def test_what_deepseek_v3_keeps_and_weighs():
    config = MLA.config(
        hidden_size=7168, num_attention_heads=128, head_dim=192, v_head_dim=128, q_lora_rank=1536, qk_rope_head_dim=64
    )
    assert (config.kv_lora_rank, config.kept, config.qk_nope_head_dim) == (512, 576, 128)
    layer = cost(MLA, config, q_len=1, kv_len=163_840, dtype="bfloat16")
    assert 61 * layer.kv_cache_bytes / 2**30 == pytest.approx(10.72, abs=0.005)
    with torch.device("meta"):
        theirs = DeepseekV3Attention(DeepseekV3Config(), 0)
    assert layer.parameters == sum(p.numel() for p in theirs.parameters())


def test_it_keeps_512_and_64_by_default():
    config = MLA.config()
    assert (config.kept, config.head_dim, config.v_head_dim, config.form) == (576, 128, 64, "auto")
    assert MLA.cache(config, 10) == {"latent": (10, 576)}
    assert MLA.config(head_dim=192).qk_rope_head_dim == 64 and MLA.config(head_dim=32).qk_rope_head_dim == 10
    with pytest.raises(Refusal, match="qk_rope_head_dim must be at most head_dim = 8, got 9"):
        MLA.config(head_dim=8, qk_rope_head_dim=9)
    with pytest.raises(Refusal, match="form must be one of auto, expanded, absorbed"):
        MLA.config(form="folded")


@pytest.mark.parametrize("backend", MLA.backends)
def test_decoding_never_decompresses_the_cache(backend):
    config = MLA.config(hidden_size=64, num_attention_heads=16, head_dim=48, v_head_dim=32, kv_lora_rank=32)
    weights = MLA.weights(config, seed=0)
    cache = MLA.attend(config, weights, torch.randn(1, 4096, 64), allowed=CAUSAL["allowed"], backend="sdpa").cache
    step = torch.randn(1, 1, 64)
    peaks = {}
    for form in ("auto", "expanded"):
        shaped = MLA.config(
            hidden_size=64, num_attention_heads=16, head_dim=48, v_head_dim=32, kv_lora_rank=32, form=form
        )
        peaks[form] = peak_bytes(
            lambda shaped=shaped: MLA.attend(shaped, weights, step, cache=cache, backend=backend, **CAUSAL)
        )
    every_key_and_value = 4097 * 16 * (48 + 32) * 4
    assert peaks["expanded"] > every_key_and_value > 5 * peaks["auto"]


def test_the_form_with_fewer_flops_is_taken():
    config = MLA.config(hidden_size=1024, num_attention_heads=16)
    assert MLA.absorbs(config, 1, 4096) and not MLA.absorbs(config, 4096, 4096) and not MLA.absorbs(config, 1, 1)
    forms = [MLA.config(hidden_size=1024, num_attention_heads=16, form=form) for form in ("expanded", "absorbed")]
    for q_len, kv_len in ((1, 2), (1, 4096), (64, 512), (300, 512), (512, 512), (1000, 8192)):
        best = min(cost(MLA, form, q_len=q_len, kv_len=kv_len).flops for form in forms)
        assert cost(MLA, config, q_len=q_len, kv_len=kv_len).flops == best


@pytest.mark.parametrize("form", ["expanded", "absorbed"])
@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_the_predicted_peak_is_near_the_measured_one(form, backend):
    sizes = {"hidden_size": 64, "num_attention_heads": 8, "head_dim": 24, "v_head_dim": 16, "kv_lora_rank": 32}
    config = MLA.config(form=form, **sizes)
    weights, x, past = MLA.weights(config, seed=0), torch.randn(1, 8, 64), torch.randn(1, 2040, config.kept)
    measured = peak_bytes(lambda: MLA.attend(config, weights, x, cache={"latent": past}, backend=backend))
    predicted = cost(MLA, config, q_len=8, kv_len=2048, backend=backend)
    # The longer cache is written beside the one that was given; torch's plain kernel may copy the values once more.
    assert predicted.peak_bytes + predicted.kv_cache_bytes == pytest.approx(measured, rel=0.2)


@pytest.mark.parametrize("form", ["expanded", "absorbed"])
@pytest.mark.parametrize(("rank", "rope"), [(0, 4), (7, 0), (7, 10)])
def test_flops_of_either_form_are_what_torch_counts(form, rank, rope):
    config = MLA.config(form=form, q_lora_rank=rank, qk_rope_head_dim=rope, **SMALL)
    weights = double(config)
    cache = MLA.attend(config, weights, tokens(3, 8)).cache
    with FlopCounterMode(display=False) as counter:
        MLA.attend(config, weights, tokens(3, 2), cache=cache)
    assert cost(MLA, config, q_len=2, kv_len=10, batch=3).flops == counter.get_total_flops() > 0
