"""Where the first page leads: every link is a page with settings, and one to a page that is not there is left out."""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from attnviz.home_view import HomeView
from attnviz.view import settle

# A path longer than this is a list, not a beginning.
STEPS = 3


class Step(NamedTuple):
    """Name one link: its key in the locale table, the page, and the page's settings that differ from the defaults."""

    key: str
    page: str
    settings: Mapping[str, str]


class Miniature(NamedTuple):
    """Name one miniature: its key and the settings of the attention view that it is, d_k aside."""

    key: str
    settings: Mapping[str, str]


_NONE: Mapping[str, str] = MappingProxyType({})

# No token comes twice: equal keys would share a row's weight, however far it has collapsed.
SENTENCE = "every token looks back and takes a little from each one ."
MINIATURES = (
    Miniature("scaled", {"text": SENTENCE, "head": "0"}),
    Miniature("unscaled", {"text": SENTENCE, "head": "0", "scale": "one"}),
    Miniature("mask", {"text": SENTENCE, "head": "0", "mask": "sliding_window", "window": "4"}),
    Miniature("shared", {"text": SENTENCE, "heads": "4", "kv_heads": "2", "mask": "full"}),
)

# In the order in which they are taken up; the first ``STEPS`` whose pages exist are shown.
PATHS: Mapping[str, tuple[Step, ...]] = MappingProxyType(
    {
        "learner": (
            Step("by_hand", "attention", {"input": "worked", "cell": "0,2,1"}),
            Step("saturation", "saturation", _NONE),
            Step("masks", "masks", _NONE),
            Step("lookup", "attention", {"head": "0", "stage": "scores", "cell": "0,6,3"}),
            Step("collapse", "attention", {"text": SENTENCE, "scale": "one", "d_k": "256", "head": "0"}),
        ),
        "engineer": (
            Step("variants", "variants", _NONE),
            Step("memory", "kv_cache", _NONE),
            Step("race", "benchmark", _NONE),
            Step("sharing", "attention", {"heads": "8", "kv_heads": "2"}),
            Step("fused", "flash", {"length": "2048"}),
            Step("half", "attention", {"dtype": "float16", "scale": "custom", "scale_value": "60000", "head": "0"}),
        ),
        "speaker": (
            Step("one_cell", "attention", {"head": "1", "d_k": "16", "cell": "1,7,3"}),
            Step("tiles", "flash", _NONE),
            Step("gallery", "masks", _NONE),
            Step("collapse", "attention", {"text": SENTENCE, "scale": "one", "d_k": "256", "head": "0"}),
            Step("window", "attention", {"input": "normal", "length": "64", "head": "0", "mask": "sliding_window"}),
        ),
    }
)


def steps(person: str, there: Collection[str]) -> tuple[Step, ...]:
    """Give the first links of one person's path.

    Args:
        person: Key of ``PATHS``.
        there: Keys of the pages there are.
    """
    return tuple(step for step in PATHS[person] if step.page in there)[:STEPS]


def settings_of(miniature: Miniature, view: HomeView) -> dict[str, str]:
    """Give the attention view that a miniature shows, as a link carries it."""
    return settle({**miniature.settings, "d_k": str(view.width)}).link()
