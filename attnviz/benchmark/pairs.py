"""What is compared: every variant in every way that it can be computed, "GQA · flash" being one row."""

from dataclasses import dataclass
from typing import Any

from attnviz.benchmark.request import DECODE, Contestant
from attnviz.registry import Registry
from attnviz.text import Text
from attnviz.variants import VARIANTS, Variant

# "MHA" is an abbreviation, "linear" a word.
_SHORT = 3
_KV_HEADS = "num_key_value_heads"


@dataclass(frozen=True)
class Pair:
    """Name a variant and how it is computed.

    Args:
        key: "gqa-flash".
        label: As it is called on screen.
        variant: Key of the variant.
        backend: Key of one of its backends or forms.
    """

    key: str
    label: Text
    variant: str
    backend: str

    @property
    def name(self) -> str:
        """Give a short name that is the same in every language, so that results do not depend on it."""
        variant = self.variant.upper() if len(self.variant) <= _SHORT else self.variant
        return f"{variant} · {self.backend}"

    @property
    def shares(self) -> bool:
        """Say whether the number of KV heads can be chosen."""
        return any(knob.name == _KV_HEADS for knob in VARIANTS[self.variant].knobs)

    def contestant(self, heads: int, d_k: int, what: str = "core", kv_heads: int | None = None) -> Contestant:
        """Give the contestant at these sizes; ``kv_heads`` counts where it can be chosen, and is in the name then."""
        sizes, name = {"hidden_size": heads * d_k, "num_attention_heads": heads}, self.name
        if self.shares and kv_heads is not None:
            sizes[_KV_HEADS] = kv_heads
            name = name.replace(" ", f" {heads}/{kv_heads} ", 1)
        return Contestant(self.variant, self.backend, sizes, what, label=name)


def _pair(variant: Variant, backend: str) -> Pair:
    label = Text(f"{variant.label.en} · {backend}", f"{variant.label.zh} · {backend}")
    return Pair(f"{variant.key}-{backend}", label, variant.key, backend)


def passed(mode: str, length: int, *, what: str, mask: str) -> tuple[str, dict[str, Any]]:
    """Give what contestants do in a pass, and what their request says of it.

    Args:
        mode: One of ``PASSES``, or ``DECODE``: one token that sees a cache of the length, which no mask hides.
        length: Tokens that ask and are attended to, or that are in the cache.
        what: What a contestant does in any other pass.
        mask: Key of the mask there.
    """
    if mode == DECODE:
        return DECODE, {"q_len": 1, "kv_len": length}
    return what, {"q_len": length, "mask": mask, "mode": mode}


PAIRS: Registry[Pair] = Registry(
    "pair", (_pair(variant, backend) for variant in VARIANTS.values() for backend in variant.backends)
)

DEFAULTS = tuple(key for key in ("mha-eager", "mha-sdpa", "mha-flash", "linear-chunked") if key in PAIRS)
