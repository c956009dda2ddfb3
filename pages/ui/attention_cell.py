"""The arithmetic of the selected cell, and the shapes of all tensors, as tables with their real numbers."""

import math
from collections.abc import Sequence

import streamlit as st

from attnviz.arithmetic import Cell, cell, ledger
from attnviz.view import View
from attnviz.view_run import run
from pages.ui import layout
from pages.ui.controls import Panel
from pages.ui.translate import counted, table

MOST_PRODUCTS = 8
MOST_OUTPUTS = 4
MOST_TOKEN = 24
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def arithmetic(panel: Panel) -> None:
    """Show every step from the selected query and key to its share of the value; nothing without a selected key."""
    view = panel.settled.view
    if len(view.cell) < 3:
        return
    call, ran = run(view)
    head, query, key = view.cell
    worked = cell(call, head, query, key, ran, values=MOST_OUTPUTS)
    st.subheader(panel.title("cell.title"), anchor=False)
    if worked.drawn.is_finite:
        st.markdown(_lead(panel, worked))
    else:
        st.warning(panel.title("cell.not_finite", dtype=view.dtype))
    turned = worked.products[0].unturned is not None
    left, right = st.columns([1.1, 1] if turned else [1, 1.25], gap="medium" if turned else "large")
    with left:
        _products(panel, worked)
    with right:
        _steps(panel, worked)
        _output(panel, worked)
    if not worked.drawn.is_finite:
        return
    difference = abs(worked.drawn.weight - worked.share)
    st.caption(
        panel.title("cell.drawn", dtype=view.dtype, weight=plain(worked.drawn.weight), difference=plain(difference))
    )


def shapes(panel: Panel) -> None:
    """Show the size of every tensor from the token vectors to the output."""
    opened = layout.fold(panel.title("ledger.title"), icon=":material/straighten:", key="attention.ledger")
    if opened is not None:
        with opened:
            _ledger(panel)


def _ledger(panel: Panel) -> None:
    view, words = panel.settled.view, table(panel.language, "attention.ledger")
    st.markdown(words["lead"])
    rows = [
        (
            f"{words[entry.step]} ${entry.name}$",
            "`" + str(list(entry.shape)).replace(" ", "\N{NO-BREAK SPACE}") + "`",
            layout.escape(", ".join(" · ".join(words[part] for part in axis.split(" · ")) for axis in entry.axes)),
        )
        for entry in ledger(view)
    ]
    _table([words[name] for name in ("step", "shape", "axes")], rows, "lll")
    if view.kv_heads != view.heads:
        fields = {"heads": view.heads, "kv_heads": view.kv_heads, "group": view.heads // view.kv_heads}
        st.caption(panel.title("ledger.shared", **fields))


def plain(value: float) -> str:
    """Write a number as text: with four decimals, fewer where they say it exactly, or as a power of ten."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "−∞"
    if value.is_integer() and abs(value) < 1e6:
        text = str(int(value))
    elif 1e-3 <= abs(value) < 1e5:
        text = f"{value:.4f}"
        text = text.rstrip("0") if float(text) == value else text
    else:
        mantissa, exponent = f"{value:.2e}".split("e")
        text = f"{mantissa}·10{str(int(exponent)).translate(_RAISED)}"
    return text.replace("-", "−")


def formula(value: float, *, behind: bool = False) -> str:
    """Write a number inside a formula; a negative one behind a sign stands in brackets."""
    text = plain(value).replace("−", "-")
    if "·10" in text:
        exponent = int(f"{value:.2e}".split("e")[1])
        text = text.split("·")[0] + rf" \cdot 10^{{{exponent}}}"
    text = text.replace("NaN", r"\mathrm{NaN}").replace("∞", r"\infty")
    return f"({text})" if behind and value < 0 else text


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> None:
    """Draw a table; ``align`` has one letter for each column, l or r. Cells are Markdown."""
    rule = {"l": ":---", "r": "---:"}
    lines = [header, [rule[letter] for letter in align], *rows]
    st.markdown("\n".join("| " + " | ".join(line) + " |" for line in lines))


def _place(panel: Panel, view: View, side: str, index: int) -> str:
    """Name a query or key by its index and its token, literally."""
    tokens = view.tokens(side)
    if tokens is None:
        return str(index)
    token = tokens[index].replace("\t", "⇥").replace("\n", "↵")
    token = token if len(token) <= MOST_TOKEN else token[: MOST_TOKEN - 1] + "…"
    return panel.title("cell.token", index=index, token=layout.escape(token))


def _lead(panel: Panel, worked: Cell) -> str:
    """Say in one sentence what the cell comes to."""
    view = panel.settled.view
    name = "lead" if worked.allowed else "lead_masked" if worked.keys_seen else "lead_no_key"
    return panel.title(
        f"cell.{name}",
        head=worked.head,
        query=_place(panel, view, "query", worked.query),
        target=_place(panel, view, "key", worked.key),
        share=f"{worked.share:.2%}",
    )


def _products(panel: Panel, worked: Cell) -> None:
    """Show the dot product: all dimensions in their order, or the largest and the sum of the rest."""
    count = len(worked.products)
    if count <= MOST_PRODUCTS:
        st.markdown(panel.title("cell.product"))
        shown = worked.products
    else:
        st.markdown(panel.title("cell.product_largest", shown=MOST_PRODUCTS, count=count))
        shown = worked.largest(MOST_PRODUCTS)
    turned = shown[0].unturned is not None
    rows = [(str(p.dimension), *map(plain, (*(p.unturned or ()), p.query, p.key, p.product))) for p in shown]
    gap = ["…"] * (4 if turned else 2)
    if count > len(shown):
        rest = worked.score - math.fsum(p.product for p in shown)
        rows.append((panel.title("cell.more", count=count - len(shown)), *gap, plain(rest)))
    rows.append((f"**{panel.title('cell.sum')}**", *("" for _ in gap), f"**{plain(worked.score)}**"))
    if turned:
        _table(["$i$", "$q_i$", "$k_i$", "$q'_i$", "$k'_i$", r"$q'_i \cdot k'_i$"], rows, "rrrrrr")
        st.caption(panel.title("cell.turned"))
    else:
        _table(["$i$", "$q_i$", "$k_i$", r"$q_i \cdot k_i$"], rows, "rrrr")


def _changes(panel: Panel, worked: Cell) -> list[tuple[str, str, str]]:
    """Show what a score modification does to the scaled score, one line for each step."""
    rows, before = [], worked.scaled
    for change in worked.changes:
        score, amount = formula(before), formula(change.amount, behind=True)
        how = {
            "factor": rf"${score} \,/\, {formula(1 / change.amount)}$",
            "cap": rf"${amount} \tanh({score} \,/\, {amount})$",
            "bias": f"${score} + {amount}$",
        }
        rows.append((panel.title(f"cell.{change.kind}"), how[change.kind], plain(change.result)))
        before = change.result
    return rows


def _steps(panel: Panel, worked: Cell) -> None:
    """Show the way from the score to the weight, one line for each step."""
    say = panel.title
    st.markdown(say("cell.softmax"))
    products = counted(panel.language, "product", len(worked.products))
    final, score = formula(worked.final), formula(worked.score)
    scale = rf"${score} \times {formula(worked.scale, behind=True)}$"
    # The letter stands where the score that enters the softmax is reached.
    ready = [(say("cell.scaled"), scale, plain(worked.scaled)), *_changes(panel, worked)]
    ready[-1] = (f"{ready[-1][0]} $s$", *ready[-1][1:])
    rows = [
        (f"{say('cell.score')} $q \\cdot k$", say("cell.score_from", products=products), plain(worked.score)),
        *ready,
        (
            say("cell.mask"),
            say("cell.kept" if worked.allowed else "cell.masked"),
            say("cell.in" if worked.allowed else "cell.out"),
        ),
    ]
    if worked.row_maximum is None or worked.maximum_key is None:
        rows.append((f"{say('cell.row_maximum')} $m$", say("cell.maximum_none"), "–"))
    else:
        side, kind, index = ("query", "column", "i") if worked.by_column else ("key", "row", "j")
        among = {"queries" if worked.by_column else "keys": counted(panel.language, side, worked.keys_seen)}
        where = _place(panel, panel.settled.view, side, worked.maximum_key)
        from_keys = say(f"cell.maximum_from_{kind}", target=where, **among)
        power = rf"$e^{{{final} - {formula(worked.row_maximum, behind=True)}}}$"
        share = rf"${formula(worked.exponent)} \,/\, {formula(worked.row_sum)}$"
        rows += [
            (f"{say(f'cell.{kind}_maximum')} $m$", from_keys, plain(worked.row_maximum)),
            (
                f"{say('cell.exponent')} $e^{{s-m}}$",
                power if worked.allowed else say("cell.out"),
                plain(worked.exponent),
            ),
            (f"{say(f'cell.{kind}_sum')} $Z$", rf"$\sum_{index} e^{{s_{index} - m}}$", plain(worked.row_sum)),
            (f"{say('cell.weight')} $w$", share, f"**{plain(worked.weight)}**"),
        ]
        reached = worked.weight
        if worked.late_factor is not None:
            late, reached = rf"${formula(reached)} \times {formula(worked.late_factor)}$", reached * worked.late_factor
            rows.append((say("cell.late"), late, f"**{plain(reached)}**"))
        if worked.dropout_factor is not None:
            factor = rf"${formula(reached)} \times {formula(worked.dropout_factor)}$"
            kept = worked.dropout_factor > 0
            rows.append((say("cell.dropout"), factor if kept else say("cell.dropped"), f"**{plain(worked.share)}**"))
    _table([say(f"cell.{name}") for name in ("step", "calculation", "result")], rows, "llr")


def _output(panel: Panel, worked: Cell) -> None:
    """Show the first dimensions of the output row as this key's term and the others'."""
    query = _place(panel, panel.settled.view, "query", worked.query)
    if len(worked.output) == worked.value_width:
        st.markdown(panel.title("cell.output_whole", query=query))
    else:
        st.markdown(panel.title("cell.output", query=query, shown=len(worked.output), count=worked.value_width))
    rows = [
        (str(o.dimension), plain(o.value), plain(o.term), plain(o.others), f"**{plain(o.total)}**")
        for o in worked.output
    ]
    this, others = panel.title("cell.this_key"), panel.title("cell.other_keys")
    _table(["$c$", "$v_c$", f"{this} $w v_c$", others, "$o_c$"], rows, "rrrrr")
