"""Sizes of a layer that keeps a state."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attnviz.knobs import Choice, Flag, Integer, Knob
from attnviz.registry import Registry
from attnviz.text import Text
from attnviz.variants.grouped import GroupedConfig
from attnviz.variants.sizes import BIASES, HEAD_DIM, HEADS, HIDDEN_SIZE, V_HEAD_DIM, read_sizes
from attnviz.variants.state.features import FEATURE_MAPS, FeatureMap

FEATURES = Integer(
    "features",
    Text("Random features", "随机特征数"),
    256,
    Text(
        "Drawn directions of the random map; the others have d_k features.",
        "随机映射所取的方向数；其他映射的特征数为 d_k。",
    ),
    low=1,
    high=65_536,
    slider_high=1024,
)
DECAY = Choice(
    "decay",
    Text("Decay", "衰减"),
    "none",
    Text("How much of the state is left when a token comes in.", "每来一个 token，状态保留多少。"),
    options={
        "none": Text("None", "无"),
        "fixed": Text("Fixed for each head", "每个头固定"),
        "gated": Text("Read from the token, for each head", "由 token 决定，每头一个"),
        "gated_features": Text("Read from the token, for each feature", "由 token 决定，每个特征一个"),
    },
)
CHUNK = Integer(
    "chunk",
    Text("Chunk", "分块长度"),
    64,
    Text("Tokens whose pairs are computed at once.", "一次性计算其两两配对的 token 数。"),
    Text("tokens", "token"),
    low=1,
    high=65_536,
    slider_high=512,
)


def feature_map_knob(default: str, options: Registry[FeatureMap] = FEATURE_MAPS) -> Choice:
    """Give the picker of feature maps."""
    return Choice(
        "feature_map",
        Text("Feature map", "特征映射"),
        default,
        Text("What queries and keys go through before their product.", "查询与键在相乘之前经过的映射。"),
        options={key: entry.label for key, entry in options.items()},
    )


@dataclass(frozen=True)
class StateConfig(GroupedConfig):
    """Hold the sizes of one layer that keeps a state; the first are those of ``GroupedConfig``.

    Args:
        feature_map: Key of ``FEATURE_MAPS``.
        features: Directions of the random map.
        normalize: Rows are divided by the sum of their weights; under a delta rule, queries and keys have length one.
        decay: Key of the knob's options.
        chunk: Tokens of a chunk.
    """

    feature_map: str = "elu"
    features: int = 256
    normalize: bool = True
    decay: str = "none"
    chunk: int = 64

    @property
    def map(self) -> FeatureMap:
        """The feature map itself."""
        return FEATURE_MAPS[self.feature_map]

    @property
    def width(self) -> int:
        """Number of features, the rows of a state."""
        return self.features if self.map.is_random else self.head_dim

    @property
    def rates(self) -> int:
        """Number of decays that are read from a token."""
        each = {"gated": 1, "gated_features": self.width}.get(self.decay, 0)
        return each * self.num_attention_heads


def knobs(feature_map: Choice, normalize: Flag) -> tuple[Knob, ...]:
    """Give all sizes of a variant with these two knobs of its own."""
    shared = (HIDDEN_SIZE, HEADS, HEAD_DIM, V_HEAD_DIM, BIASES)
    return (*shared, feature_map, FEATURES, normalize, DECAY, CHUNK)


def read_config(known: tuple[Knob, ...], sizes: Mapping[str, Any]) -> StateConfig:
    """Give a checked configuration.

    Raises:
        Refusal: If a size breaks a rule; names the size, the rule and the value received.
    """
    given: dict[str, Any] = {knob.name: knob.default for knob in known if knob.name not in ("head_dim", "v_head_dim")}
    given |= read_sizes(known, sizes)
    heads = given["num_attention_heads"]
    head_dim = given.setdefault("head_dim", max(1, given["hidden_size"] // heads))
    given.setdefault("v_head_dim", head_dim)
    return StateConfig(num_key_value_heads=heads, **given)
