"""Settings of the linear attention page."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import cast

from attnviz.knobs import Choice, Integer, Knob, Lengths, Number
from attnviz.reading import Reader, Settled
from attnviz.text import Text, same
from attnviz.variants.state.features import FEATURE_MAPS, FeatureMap
from attnviz.variants.state.sizes import FEATURES, feature_map_knob

MOST_LENGTH = 128
SHOWS: Mapping[str, Text] = MappingProxyType(
    {
        "recall": Text("Recall of stored pairs", "回忆存入的键值对"),
        "features": Text("Random features", "随机特征"),
        "cost": Text("Cost", "开销"),
        "forms": Text("Three forms", "三种形式"),
    }
)
_STOPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_STEP = Text(
    "{name} was {got}, beyond the {length} tokens; using {used}.",
    "{name} 原为 {got}，超出 {length} 个 token，改用 {used}。",
)
_CELL = Text(
    "{name} was {got}, which is not on the maps; nothing is selected.", "{name} 原为 {got}，不在图中，已取消选择。"
)

KNOBS: Mapping[str, Knob] = MappingProxyType(
    {
        knob.name: knob
        for knob in (
            feature_map_knob("elu"),
            Integer(
                "step",
                Text("Tokens read", "已读 token 数"),
                16,
                Text("After how many tokens the state is shown.", "显示读入多少个 token 之后的状态。"),
                Text("tokens", "token"),
                low=1,
                high=MOST_LENGTH,
            ),
            Integer(
                "d_k",
                same("d_k (head_dim)"),
                16,
                Text(
                    "Width of a query, a key and a value: the state is this wide.",
                    "查询、键和值的维度，也就是状态的宽度。",
                ),
                low=1,
                high=128,
                stops=_STOPS,
            ),
            Number(
                "size",
                Text("Size of q and k", "q 与 k 的大小"),
                1.0,
                Text("Standard deviation of their entries: larger ones make softmax pick fewer keys.",
                     "各分量的标准差：越大，softmax 选中的键越少。"),
                low=0.0,
                high=10.0,
                slider_high=3.0,
                step=0.05,
            ),
            Integer(
                "length",
                Text("Length", "序列长度"),
                32,
                Text("Tokens of the sequence.", "序列的 token 数。"),
                Text("tokens", "token"),
                low=1,
                high=MOST_LENGTH,
                stops=tuple(stop for stop in (*range(1, 17), 20, 24, 28, 32, 48, 64, 96, 128)),
            ),
            Integer("features", FEATURES.label, 64, FEATURES.help, low=1, high=1024, slider_high=256),
            Integer("seed", Text("Seed", "随机种子"), 0, low=0, high=2**31 - 16),
            Choice("show", Text("Shown below", "下方显示"), "recall", options=SHOWS),
            Lengths("cell", Text("Selected cell", "选中的格"), (0,), high=4096, most=3),
        )
    }
)  # fmt: skip


@dataclass(frozen=True)
class View:
    """Hold every setting of the page, checked; names as in ``KNOBS``."""

    feature_map: str
    step: int
    d_k: int
    size: float
    length: int
    features: int
    seed: int
    show: str
    cell: tuple[int, ...]

    @property
    def map(self) -> FeatureMap:
        """The feature map itself."""
        return FEATURE_MAPS[self.feature_map]

    @property
    def width(self) -> int:
        """Number of features."""
        return self.features if self.map.is_random else self.d_k


def settle(given: Mapping[str, object]) -> Settled[View]:
    """Turn settings as text into a checked view; never raises for any content of ``given``."""
    reader = Reader(given, frozenset(KNOBS))
    for name, knob in KNOBS.items():
        reader.read(name, knob, () if name == "cell" else None)
    length, step = (cast("int", reader.values[name]) for name in ("length", "step"))
    if step > length:
        if "step" in given:
            reader.follow("step", length, _STEP, length=length)
        reader.values["step"] = length
        reader.defaults["step"] = min(cast("int", reader.defaults["step"]), length)
    view = View(**{name: reader.values[name] for name in KNOBS})  # type: ignore[arg-type]
    limits = (2, view.length, view.length)
    if view.cell and (len(view.cell) < 3 or any(at >= most for at, most in zip(view.cell, limits, strict=False))):
        reader.follow("cell", (), _CELL)
        view = replace(view, cell=())
    return reader.settled(view)
