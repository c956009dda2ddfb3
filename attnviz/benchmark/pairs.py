"""What is compared: every variant in every way that it can be computed, "GQA · flash" being one row."""

from dataclasses import dataclass

from attnviz.benchmark.request import Contestant
from attnviz.registry import Registry
from attnviz.text import Text
from attnviz.variants import VARIANTS, Variant

# "MHA" is an abbreviation, "linear" a word.
_SHORT = 3


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

    def contestant(self, heads: int, d_k: int, what: str = "core") -> Contestant:
        """Give the contestant at these sizes."""
        sizes = {"hidden_size": heads * d_k, "num_attention_heads": heads}
        return Contestant(self.variant, self.backend, sizes, what, label=self.name)


def _pair(variant: Variant, backend: str) -> Pair:
    label = Text(f"{variant.label.en} · {backend}", f"{variant.label.zh} · {backend}")
    return Pair(f"{variant.key}-{backend}", label, variant.key, backend)


PAIRS: Registry[Pair] = Registry(
    "pair", (_pair(variant, backend) for variant in VARIANTS.values() for backend in variant.backends)
)

DEFAULTS = tuple(key for key in ("mha-eager", "mha-sdpa", "mha-flash", "linear-chunked") if key in PAIRS)
