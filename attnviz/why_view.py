"""Settings of the page on what attention replaced."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from attnviz.knobs import Integer, Knob, Number
from attnviz.reading import Reader, Settled
from attnviz.recurrence import Sizes
from attnviz.text import Text

_TOKENS = Text("tokens", "token")
_STOPS = (2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)

KNOBS: Mapping[str, Knob] = MappingProxyType(
    {
        knob.name: knob
        for knob in (
            Integer(
                "length",
                Text("Length", "序列长度"),
                64,
                Text("Tokens from the first to the one that answers.", "从第一个 token 到给出回答的 token。"),
                _TOKENS,
                low=2,
                high=256,
                stops=_STOPS,
            ),
            Number(
                "gain",
                Text("Recurrent weights ×", "循环权重 ×"),
                1.0,
                Text(
                    "Factor on the weights from one hidden state to the next, of RNN and LSTM.",
                    "RNN 与 LSTM 中，从一个隐藏状态到下一个的权重乘以此数。",
                ),
                low=0.0,
                high=8.0,
                slider_high=4.0,
                step=0.05,
            ),
            Integer(
                "layers",
                Text("Convolutions", "卷积层数"),
                8,
                Text(
                    "Layers on top of each other; each sees two tokens further back.",
                    "叠放的层数，每层向前多看两个 token。",
                ),
                low=1,
                high=64,
                slider_high=32,
            ),
            Integer(
                "width",
                Text("Width", "宽度"),
                32,
                Text("Entries of a token's vector and of a hidden state.", "token 向量和隐藏状态的维度。"),
                low=4,
                high=128,
                stops=(4, 8, 16, 32, 64, 128),
            ),
            Integer(
                "recall",
                Text("Tokens to the first one", "距第一个 token 的长度"),
                32,
                Text("Length of the sequences that are trained on.", "训练所用序列的长度。"),
                _TOKENS,
                low=2,
                high=128,
                stops=(2, 4, 8, 16, 24, 32, 48, 64, 96, 128),
            ),
            Integer("seed", Text("Seed", "随机种子"), 0, low=0, high=2**31 - 4096),
        )
    }
)  # fmt: skip

_FOUR = Text(
    "width was {got}, which four heads cannot share; using {used}.", "宽度原为 {got}，不能由四个头均分，改用 {used}。"
)


@dataclass(frozen=True)
class View:
    """Hold every setting of the page, checked; names as in ``KNOBS``."""

    length: int
    gain: float
    layers: int
    width: int
    recall: int
    seed: int

    @property
    def sizes(self) -> Sizes:
        """The sizes of the models."""
        return Sizes(self.width, self.layers, gain=self.gain, seed=self.seed)


def settle(given: Mapping[str, object]) -> Settled[View]:
    """Turn settings as text into a checked view; never raises for any content of ``given``."""
    reader = Reader(given, frozenset(KNOBS))
    values = {name: reader.read(name, knob) for name, knob in KNOBS.items()}
    width = int(values["width"])  # type: ignore[arg-type]  # an Integer's value
    if width % 4:
        reader.follow("width", width - width % 4, _FOUR)
    return reader.settled(View(**{name: reader.values[name] for name in KNOBS}))  # type: ignore[arg-type]
