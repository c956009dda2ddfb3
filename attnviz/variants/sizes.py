"""Sizes that variants have in common, named as published ``config.json`` files have them."""

from collections.abc import Mapping, Sequence
from typing import Any

from attnviz.knobs import Flag, Integer, Knob
from attnviz.text import Text, same
from attnviz.variants.base import ONE_OF, refuse

HIDDEN_SIZE = Integer(
    "hidden_size",
    Text("Model width (hidden_size)", "模型宽度 (hidden_size)"),
    512,
    Text("Width of a token vector.", "token 向量的维度。"),
    low=1,
    high=65_536,
    slider_high=8192,
)
HEADS = Integer("num_attention_heads", Text("Heads", "头数"), 8, low=1, high=1024, slider_high=64)
KV_HEADS = Integer(
    "num_key_value_heads",
    Text("KV heads", "KV 头数"),
    2,
    Text("Heads of keys and values; must divide the heads.", "键和值的头数，必须整除头数。"),
    low=1,
    high=1024,
    slider_high=64,
)
HEAD_DIM = Integer(
    "head_dim",
    same("d_k (head_dim)"),
    64,
    Text("Width of a query and a key in one head.", "一个头里查询与键的维度。"),
    low=1,
    high=4096,
    slider_high=1024,
)
V_HEAD_DIM = Integer(
    "v_head_dim",
    same("d_v (v_head_dim)"),
    64,
    Text("Width of a value in one head.", "一个头里值的维度。"),
    low=1,
    high=4096,
    slider_high=1024,
)
BIASES = Flag("biases", Text("Biases", "偏置"), True, Text("Each projection adds a vector.", "每个投影加上一个向量。"))

SINK = Flag(
    "sink",
    Text("Sink logit", "汇聚 logit"),
    False,
    Text(
        "Each head has a learned logit in its softmax that brings no value, so that a head may attend to nothing.",
        "每个头的 softmax 里多一个可学习、不带值的 logit，使该头可以什么都不关注。",
    ),
)


def read_sizes(knobs: Sequence[Knob], given: Mapping[str, object]) -> dict[str, Any]:
    """Check sizes against their knobs and leave out those that are None.

    Raises:
        Refusal: If a name is not one of the knobs, or a value breaks its rule.
    """
    known = {knob.name: knob for knob in knobs}
    for name in given:
        if name not in known:
            raise refuse("size", ONE_OF.fill(valid=", ".join(known)), repr(name))
    return {name: known[name].parse(raw) for name, raw in given.items() if raw is not None}
