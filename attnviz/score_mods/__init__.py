"""Changes of the scores before the mask: a bias, a cap, a factor."""

from attnviz.knobs import Flag, Integer, Number
from attnviz.registry import Registry
from attnviz.score_mods.base import LateBias, ScoreMod, ScoreModKind, Terms
from attnviz.score_mods.biases import ALIBI_CODE, alibi, alibi_slopes, t5_bias, t5_bucket, t5_code
from attnviz.text import Text

__all__ = ["SCORE_MODS", "LateBias", "ScoreMod", "ScoreModKind", "Terms", "alibi_slopes", "t5_bucket"]

SCORE_MODS: Registry[ScoreModKind] = Registry(
    "score mod",
    (
        ScoreModKind(
            "none",
            Text("None", "无"),
            Text("The scores are used as they are.", "分数原样使用。"),
            "https://arxiv.org/abs/1706.03762",
            lambda: ScoreMod("none"),
        ),
        ScoreModKind(
            "alibi",
            Text("ALiBi (linear distance)", "ALiBi（线性距离偏置）"),
            Text(
                "Takes slope × distance off each score; every head has its own slope. Nothing is learned.",
                "每个分数减去“斜率 × 距离”，每个头有自己的斜率，不含可学习参数。",
            ),
            "https://arxiv.org/abs/2108.12409",
            alibi,
            code=lambda: ALIBI_CODE,
        ),
        ScoreModKind(
            "softcap",
            Text("Soft cap", "软上限 (softcap)"),
            Text(
                "Bends scores so that none exceeds the cap: cap · tanh(score / cap), before the mask.",
                "让分数不超过上限：cap · tanh(分数 / cap)，在掩码之前。",
            ),
            "https://arxiv.org/abs/2408.00118",
            lambda cap: ScoreMod("softcap", softcap=cap),
            (
                Number(
                    "cap",
                    Text("Cap", "上限"),
                    50.0,
                    Text("Gemma 2 uses 50.", "Gemma 2 用 50。"),
                    low=0.1,
                    high=1000.0,
                    slider_high=60.0,
                    step=0.1,
                ),
            ),
        ),
        ScoreModKind(
            "t5_bias",
            Text("T5 relative bias", "T5 相对位置偏置"),
            Text(
                "Adds one number per head and bucket of distances. A model learns them; here they are random. "
                "T5 itself uses scale 1.",
                "每个头、每个距离桶加上一个数。模型中它们由学习得到，这里是随机数。T5 本身的缩放系数为 1。",
            ),
            "https://arxiv.org/abs/1910.10683",
            t5_bias,
            (
                Integer("buckets", Text("Buckets", "桶数"), 32, low=2, high=128),
                Integer(
                    "max_distance",
                    Text("Largest distance", "最大距离"),
                    128,
                    Text("Farther keys share the last bucket.", "更远的键共用最后一个桶。"),
                    Text("tokens", "token"),
                    low=1,
                    high=4096,
                ),
                Flag(
                    "bidirectional",
                    Text("Keys ahead have buckets of their own", "之后的键使用单独的桶"),
                    True,
                    Text("On in T5's encoder, off in its decoder.", "T5 编码器中开启，解码器中关闭。"),
                ),
                Integer("seed", Text("Seed of the table", "偏置表的随机种子"), 0, low=0, high=2**20),
            ),
            t5_code,
        ),
        ScoreModKind(
            "temperature",
            Text("Temperature", "温度"),
            Text(
                "Divides the scores: above 1 the weights spread out, below 1 they sharpen.",
                "分数除以温度：大于 1 时权重更平均，小于 1 时更集中。",
            ),
            "https://arxiv.org/abs/1503.02531",
            lambda temperature: ScoreMod("temperature", scale=1.0 / temperature),
            (
                Number(
                    "temperature", Text("Temperature", "温度"), 1.0, low=0.01, high=100.0, slider_high=4.0, step=0.01
                ),
            ),
        ),
    ),
)
