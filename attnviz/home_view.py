"""The one setting of the first page: the width d_k that its miniatures share."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from attnviz.knobs import Integer
from attnviz.reading import Reader, Settled
from attnviz.settings import KNOBS

# Not called d_k: a link to "/" with a setting of the attention page is then known to be an old link to that page.
WIDTH = replace(cast("Integer", KNOBS["d_k"]), name="width")


@dataclass(frozen=True)
class HomeView:
    """Hold the width of a query and a key in every miniature."""

    width: int


def settle(given: Mapping[str, object]) -> Settled[HomeView]:
    """Turn settings as text into a checked view; never raises for any content of ``given``."""
    reader = Reader(given, (WIDTH.name,))
    return reader.settled(HomeView(cast("int", reader.read(WIDTH.name, WIDTH))))
