"""Agreement with vectors and code that nobody here wrote: ONNX Attention, torch's samples, transformers' eager form."""

import warnings
from functools import cache
from types import SimpleNamespace

import numpy as np
import onnx
import onnx.backend.test.case.node as node
import onnx.backend.test.case.node.attention
import pytest
import torch
import torch.nn.functional as F
from transformers.models.llama.modeling_llama import eager_attention_forward

from attnviz.backends import BACKENDS
from attnviz.masks import MASKS


def is_attention(case):
    """Tell a case of the operator from the same case spelled out in smaller operators."""
    return [step.op_type for step in case.model.graph.node] == ["Attention"]


CASES = {case.name.removeprefix("test_attention_"): case for case in node._NodeTestCases if is_attention(case)}
# These forms keep neither scores nor weights; of the cases below, which ask for one, they give only the other outputs.
WITHOUT_MATRICES = ("sdpa", "flash")
ASK_FOR_A_MATRIX = {
    "23_fullymasked_qk_matmul_output_mode3_zero",
    "24_fullymasked_qk_matmul_output_mode3_zero",
    "24_qk_matmul_output_mode3_softmax_precision",
    "3d_with_past_and_present_qk_matmul",
    "3d_with_past_and_present_qk_matmul_bias",
    "3d_with_past_and_present_qk_matmul_softcap",
    "3d_with_past_and_present_qk_matmul_softmax",
    "4d_with_past_and_present_qk_matmul",
    "4d_with_past_and_present_qk_matmul_bias",
    "4d_with_past_and_present_qk_matmul_bias_3d_mask",
    "4d_with_past_and_present_qk_matmul_bias_3d_mask_causal",
    "4d_with_past_and_present_qk_matmul_bias_4d_mask",
    "4d_with_past_and_present_qk_matmul_bias_4d_mask_causal",
    "4d_with_qk_matmul",
    "4d_with_qk_matmul_bias",
    "4d_with_qk_matmul_softcap",
    "4d_with_qk_matmul_softmax",
    "local_window_gqa_rank4_mask",
}
RAW, CAPPED, BIASED, WEIGHTS = range(4)  # qk_matmul_output_mode


def tensor(array):
    """Give an array as a tensor; NumPy has no bfloat16 of its own, and no copy may be read-only."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.astype(np.float32)).bfloat16()
    return torch.from_numpy(np.array(array))


def split(x, heads):
    """Give [batch, length, heads · width] as [batch, heads, length, width]; four axes stay."""
    return x if x.dim() == 4 else x.unflatten(-1, (heads, -1)).transpose(1, 2)


def read(case):
    """Give a case's inputs, attributes and outputs by name."""
    (step,) = case.model.graph.node
    ((given, wanted),) = case.data_sets
    names = [name for name in step.input if name]
    attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in step.attribute}
    outputs = dict(zip([name for name in step.output if name], wanted, strict=True))
    return dict(zip(names, map(tensor, given), strict=True)), attributes, outputs


def frontier(given, q_len):
    """Give where query 0 stands on the keys' axis, for each sequence: [batch | 1, 1, 1, 1]."""
    if "past_key" in given:
        return torch.tensor(given["past_key"].shape[2]).view(1, 1, 1, 1)
    if "nonpad_kv_seqlen" in given:
        return (given["nonpad_kv_seqlen"] - q_len).view(-1, 1, 1, 1)
    return torch.zeros(1, 1, 1, 1, dtype=torch.int64)


def who_may(given, attributes, q_len, kv_len):
    """Turn causality, windows, padding and boolean masks into one boolean mask."""
    ahead = torch.arange(kv_len) - torch.arange(q_len)[:, None] - frontier(given, q_len)
    may = torch.ones(1, 1, q_len, kv_len, dtype=torch.bool)
    if attributes.get("is_causal"):
        may = may & (ahead <= 0)
    for name, sign in (("left_window_size", -1), ("right_window_size", 1)):
        if attributes.get(name, -1) >= 0:
            may = may & (sign * ahead <= attributes[name])
    if "nonpad_kv_seqlen" in given:
        may = may & (torch.arange(kv_len) < given["nonpad_kv_seqlen"].view(-1, 1, 1, 1))
    mask = given.get("attn_mask")
    if mask is not None and mask.dtype == torch.bool:
        may = may & F.pad(mask, (0, kv_len - mask.shape[-1]), value=False)
    return may


def adapt(case):
    """Give a case as a call of ``attend``: query, key, value and options, and what should come out."""
    given, attributes, wanted = read(case)
    query = split(given["Q"], attributes.get("q_num_heads"))
    key, value = (split(given[name], attributes.get("kv_num_heads")) for name in "KV")
    if "past_key" in given:
        key, value = torch.cat((given["past_key"], key), 2), torch.cat((given["past_value"], value), 2)
    options = {"scale": attributes.get("scale"), "softcap": attributes.get("softcap") or None}
    mask = given.get("attn_mask")
    if mask is not None and mask.is_floating_point():
        options["bias"] = F.pad(mask, (0, key.shape[2] - mask.shape[-1]), value=-torch.inf)
    options["allowed"] = who_may(given, attributes, query.shape[2], key.shape[2])
    mode = attributes.get("qk_matmul_output_mode", RAW)
    return SimpleNamespace(
        call=(query, key, value), options=options, wanted=wanted, mode=mode, is_flat=given["Q"].dim() == 3
    )


def matrix(backend, adapted):
    """Give the scores or weights that a case asks for."""
    options = dict(adapted.options)
    if adapted.mode in (RAW, CAPPED):
        options.pop("bias", None)
    if adapted.mode == RAW:
        options["softcap"] = None
    result = backend.attend(*adapted.call, **options)
    if adapted.mode == WEIGHTS:
        return result.weights
    if adapted.mode == BIASED:
        bias = options.get("bias", torch.zeros(()))
        return result.scores.masked_fill(~options["allowed"] | torch.isneginf(bias), -torch.inf)
    return result.scores


def same(case, given, wanted):
    """Compare within the case's own tolerance, or one step of a half type where that is coarser."""
    right = tensor(wanted)
    assert (given.dtype, given.shape) == (right.dtype, right.shape)
    eps = torch.finfo(given.dtype).eps if given.dtype.itemsize == 2 else 0.0
    torch.testing.assert_close(given, right, rtol=max(case.rtol, eps), atol=max(case.atol, eps))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_onnx_attention(backend, name):
    case, adapted = CASES[name], adapt(CASES[name])
    result = BACKENDS[backend].attend(*adapted.call, **adapted.options)
    output = result.output
    same(case, output.transpose(1, 2).flatten(2) if adapted.is_flat else output, adapted.wanted["Y"])
    if "present_key" in adapted.wanted:
        same(case, adapted.call[1], adapted.wanted["present_key"])
        same(case, adapted.call[2], adapted.wanted["present_value"])
    if "qk_matmul_output" in adapted.wanted and backend in WITHOUT_MATRICES:
        assert (result.weights, result.scores) == (None, None)
    elif "qk_matmul_output" in adapted.wanted:
        same(case, matrix(BACKENDS[backend], adapted), adapted.wanted["qk_matmul_output"])


def test_the_onnx_cases_are_all_there():
    """Count them, and see that those which the fused forms answer in part are the ones that ask for a matrix."""
    assert len(CASES) == 93
    assert {
        name for name, case in CASES.items() if "qk_matmul_output" in case.model.graph.node[0].output
    } == ASK_FOR_A_MATRIX


@cache
def torch_samples():
    """Give torch's own samples of the fused call that use no dropout."""
    with warnings.catch_warnings():
        # It warns when hypothesis is not there, which its samples do not need.
        warnings.simplefilter("ignore", ImportWarning)
        from torch.testing._internal.common_methods_invocations import op_db
    # Its import also freezes torch's global switches, which would reach into other tests.
    torch.backends.__allow_nonbracketed_mutation_flag = True
    (entry,) = (entry for entry in op_db if entry.name == "nn.functional.scaled_dot_product_attention")
    samples = entry.sample_inputs("cpu", torch.float64)
    return [sample for sample in samples if not sample.kwargs["dropout_p"]]


@pytest.mark.parametrize("number", range(13))
@pytest.mark.parametrize("backend", BACKENDS)
def test_torch_samples(backend, number):
    sample = torch_samples()[number]
    tensors = [sample.input, *sample.args]
    right = F.scaled_dot_product_attention(*tensors, **sample.kwargs)
    # torch spreads batch axes; the call here wants all four, alike.
    batch = torch.broadcast_shapes(*(x.shape[:-2] for x in tensors))
    full = [x.expand(*batch, *x.shape[-2:]).reshape(-1, batch[-1], *x.shape[-2:]) for x in tensors]
    allowed = MASKS["causal"].build() if sample.kwargs["is_causal"] else None
    result = BACKENDS[backend].attend(*full, allowed=allowed, bias=sample.kwargs.get("attn_mask"))
    torch.testing.assert_close(result.output.reshape(right.shape), right, rtol=1e-12, atol=1e-12)


def test_torch_has_thirteen_samples():
    assert len(torch_samples()) == 13


@pytest.mark.parametrize("masked", (False, True))
@pytest.mark.parametrize("kv_heads", (1, 2, 4))
@pytest.mark.parametrize("backend", BACKENDS)
def test_transformers_eager_attention(backend, kv_heads, masked):
    query, key, value = (
        torch.randn(2, heads, length, 16) for heads, length in ((4, 7), (kv_heads, 11), (kv_heads, 11))
    )
    bias = torch.zeros(2, 1, 7, 11).masked_fill(torch.rand(2, 1, 7, 11) > 0.7, -torch.inf) if masked else None
    module = SimpleNamespace(num_key_value_groups=4 // kv_heads, training=False)
    output, weights = eager_attention_forward(module, query, key, value, bias, scaling=0.25)
    result = BACKENDS[backend].attend(query, key, value, bias=bias, scale=0.25)
    torch.testing.assert_close(result.output.transpose(1, 2), output)
    if result.weights is not None:
        torch.testing.assert_close(result.weights, weights)
