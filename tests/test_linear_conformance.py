"""Agreement with ONNX LinearAttention, whose vectors nobody here wrote: linear, gated, delta and gated delta rules."""

import onnx
import onnx.backend.test.case.node as node
import onnx.backend.test.case.node.linear_attention
import pytest
import torch

from attnviz.masks import MASKS
from attnviz.variants.delta import FORMS as DELTA_FORMS
from attnviz.variants.delta import delta_rule
from attnviz.variants.linear import FORMS, linear_attention

CAUSAL = MASKS["causal"].build()


def is_linear(case):
    """Tell a case of the operator from the same case spelled out in smaller operators."""
    return [step.op_type for step in case.model.graph.node] == ["LinearAttention"]


CASES = {case.name.removeprefix("test_linear_attention_"): case for case in node._NodeTestCases if is_linear(case)}


def split(x, heads):
    """Give [batch, length, heads · width] as [batch, heads, length, width]."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def run(case, form):
    """Compute a case; give the result and what should come out."""
    (step,) = case.model.graph.node
    ((given, wanted),) = case.data_sets
    at = {a.name: onnx.helper.get_attribute_value(a) for a in step.attribute}
    tensors = dict(zip([name for name in step.input if name], (torch.from_numpy(x.copy()) for x in given), strict=True))
    heads = at["kv_num_heads"]
    query, key, value = (
        split(tensors["query"], at["q_num_heads"]),
        split(tensors["key"], heads),
        split(tensors["value"], heads),
    )
    rule = at.get("update_rule", b"gated_delta").decode()
    options = {
        "allowed": CAUSAL,
        "align": "bottom_right",
        "scale": at.get("scale") or query.shape[-1] ** -0.5,
        "chunk": 3,
        "log_decay": split(tensors["decay"], heads) if "decay" in tensors else None,
        "state": (tensors["past_state"], None) if "past_state" in tensors else None,
        "form": form,
    }
    assert ("gated" in rule) == ("decay" in tensors) and ("delta" in rule) == ("beta" in tensors)
    if "beta" in tensors:
        beta = split(tensors["beta"], tensors["beta"].shape[-1])
        return delta_rule(query, key, value, beta, **options), wanted
    return linear_attention(query, key, value, **options), wanted


def forms(case):
    """Give the forms of a case's rule; a delta rule has none of pairs."""
    return DELTA_FORMS if "beta" in case.model.graph.node[0].input else FORMS


@pytest.mark.parametrize(("name", "form"), [(name, form) for name, case in CASES.items() for form in forms(case)])
def test_onnx_linear_attention(name, form):
    case = CASES[name]
    result, (output, state) = run(case, form)
    merged = result.output.transpose(1, 2).flatten(2)
    torch.testing.assert_close(merged, torch.from_numpy(output.copy()), rtol=case.rtol, atol=case.atol)
    torch.testing.assert_close(
        result.state.to(merged.dtype), torch.from_numpy(state.copy()), rtol=case.rtol, atol=case.atol
    )


def test_the_cases_are_all_there():
    assert len(CASES) == 14
