"""Why many heads: the section of the variants page in which one head must average and several need not."""

import streamlit as st

from attnviz.figures.strips import strips as rows_of_bars
from attnviz.figures.variants import missing
from attnviz.variant_view.retrieval import HEADS, PLACES, TRIALS, WIDTH, Read, Retrieval, retrieval
from attnviz.variant_view.view import View
from pages.ui.controls import Panel
from pages.ui.plot import plot
from pages.ui.strips import strips
from pages.ui.translate import table
from pages.ui.variants_picture import Drawn

WEIGHTS, MISSING = "heads_weights", "heads_missing"


def section(panel: Panel) -> None:
    """Draw one head's weights above those of as many heads as positions are wanted, and the errors beside them."""
    st.subheader(panel.title("heads.title"), anchor=False)
    wanted = int(panel.settled.view.wanted)
    fields = {"wanted": wanted, "part": WIDTH // wanted, "places": PLACES, "width": WIDTH}
    single = "_one" if wanted == 1 else ""
    st.markdown(panel.title(f"heads.task{single}", **fields, most=HEADS[-1], cases=TRIALS // 2))
    panel.control("wanted", segmented=True)
    drawn = draw(panel.settled.view, panel)
    for column, (part, one) in zip(st.columns(2, gap="medium"), drawn.items(), strict=True):
        with column:
            if part == WEIGHTS:
                strips(
                    one.figure,
                    key=f"variants.{part}",
                    alt=one.alt,
                    caption=one.caption,
                    words=table(panel.language, "strips"),
                )
                continue
            plot(
                one.figure, key=f"variants.{part}", label=one.caption, alt=one.alt, caption=one.caption,
                words=table(panel.language, "plot"),
            )  # fmt: skip
    for name in (f"average{single}", "narrow", "honest"):
        st.markdown(panel.title(f"heads.{name}", **fields))


def draw(view: View, panel: Panel) -> dict[str, Drawn]:
    """Give both figures with their captions and text alternatives."""
    wanted = int(view.wanted)
    found = retrieval(wanted, view.seed)
    one, many = found.reads[0], next(read for read in found.reads if read.heads == wanted)
    fields = {"wanted": wanted, "one": _share(one.error), "many": _share(many.error)}
    caption = panel.title("heads.caption_one" if wanted == 1 else "heads.caption", **fields)
    return {
        WEIGHTS: Drawn(_weights(found, one, many, panel), caption, f"{caption} {_places(found, panel)}"),
        MISSING: Drawn(_missing(found, wanted, panel), panel.title("heads.curve"), _errors(found, panel)),
    }


def _share(error: float) -> str:
    """Give a share in percent, to a tenth: more would be noise."""
    return f"{error:.1%}" if error >= 0.0005 else "< 0.1%"


def _places(found: Retrieval, panel: Panel) -> str:
    return panel.title("heads.places", places=", ".join(map(str, found.places)))


def _weights(found: Retrieval, one: Read, many: Read, panel: Panel) -> dict:
    """Draw a row of bars for the single head, and one for each of several."""
    rows, names = {"one": one.weights[0]}, {"one": panel.title("heads.one")}
    if many.heads > 1:
        for head in range(many.heads):
            rows[str(head)] = many.weights[head]
            names[str(head)] = panel.title("heads.of", head=head, heads=many.heads)
    notes = {
        key: " · ".join(f"{place}: {row[place]:.2f}" for place in found.places if row[place] >= 0.05)
        for key, row in rows.items()
    }
    return rows_of_bars(rows, names, notes)


def _missing(found: Retrieval, wanted: int, panel: Panel) -> dict:
    names = {name: panel.title(f"heads.{name}", width=WIDTH) for name in ("heads", "missing", "measured", "predicted")}
    names["wanted"] = panel.title("heads.wanted", wanted=wanted)
    heads, errors, theory = ([getattr(read, name) for read in found.reads] for name in ("heads", "error", "predicted"))
    return missing(heads, errors, theory, wanted=wanted, names=names)


def _errors(found: Retrieval, panel: Panel) -> str:
    said = (f"{read.heads}: {_share(read.error)} ({_share(read.predicted)})" for read in found.reads)
    return panel.title("heads.curve_alt", errors=", ".join(said))
