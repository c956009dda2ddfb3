"""A sweep over lengths on the benchmark page: curves as they grow, what they say, and the table behind them."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from attnviz import units
from attnviz.benchmark import Failure, Probe, Request, Result, declared_peak, desk, predict, table
from attnviz.benchmark.fits import Series, crossings, finding, power
from attnviz.figures.measured import Curve, curves
from attnviz.text import Refusal
from pages.ui import layout, measured, translate
from pages.ui.controls import Panel
from pages.ui.measured_bars import points
from pages.ui.measured_held import CUT_SHORT
from pages.ui.plot import plot

_KINDS = {"time": ("latency_s", "latency_lower_s", "latency_upper_s"), "memory": ("peak_bytes",) * 3}
_UNITS = {"time": (units.short_seconds, units.TIME_MARKS), "memory": (units.binary_bytes, 4)}
# More crosses than this hide each other.
_MOST_CROSSES = 3
_FILES, _MOST_FILES = "benchmark.files", 8


def sweep(panel: Panel) -> None:
    """Draw a sweep: its button and progress, curves of time and memory, the finding, the table and other results."""
    view = panel.settled.view
    other = _loaded(panel, view.sweep())

    def draw(requests: Sequence[Request], shown: Sequence[Result]) -> None:
        held = table.frame(requests, shown)
        own = _named(held, requests)
        rows = own if other is None else pd.concat([own, other], ignore_index=True)
        _pictures(panel, requests, rows, _refused(panel.language, requests, shown))
        if len(held):
            _take_home(panel, held)

    for dtype in view.dtypes.split(","):
        desk().speed(Probe(dtype, view.threads, view.device))
    section = st.container()
    # Below the charts but before them: whatever a file does to them, it can be taken out again.
    _upload(panel)
    with section:
        measured.section(panel, "sweep", view.sweep(), draw)


def _named(rows: pd.DataFrame, requests: Sequence[Request]) -> pd.DataFrame:
    """Give the rows with the name of the curve that each belongs to."""
    several = len({request.dtype for request in requests}) > 1
    return rows.assign(curve=rows["label"] + (" · " + rows["dtype"] if several else ""), alike=True)


def _series(rows: pd.DataFrame, column: str) -> dict[str, Series]:
    """Give each curve's values by length, without what was not measured."""
    found: dict[str, Series] = {}
    for name, length, value in zip(rows["curve"], rows["kv_len"], rows[column], strict=True):
        if not pd.isna(value) and value > 0:
            found[str(name)] = {**found.get(str(name), {}), int(length): float(value)}
    return found


def _noisy(rows: pd.DataFrame) -> list[tuple[str, int]]:
    """Give curve and length of the points whose times are no more than a hint."""
    found = rows[["curve", "kv_len"]][table.noisy(rows)]
    return [(str(name), int(length)) for name, length in zip(found["curve"], found["kv_len"], strict=True)]


def _refused(language: str, requests: Sequence[Request], shown: Sequence[Result]) -> dict[tuple[str, int], str]:
    """Give why there is no time, by curve and length: what will not fit or cannot be computed."""
    several = len({request.dtype for request in requests}) > 1
    found = {}
    for request, result in zip(requests, shown, strict=False):
        known = points(result, len(request.contestants))
        for contestant, point in zip(request.contestants, known, strict=True):
            own = None if point is None else point.failure
            failure = result if own is None and isinstance(result, Failure) else own
            if failure is not None and failure.reason not in CUT_SHORT:
                name = contestant.label + (f" · {request.dtype}" if several else "")
                found[name, request.keys] = f"{units.count(request.keys)} · {_plain(failure.text.say(language))}"
    return found


def _predictions(requests: Sequence[Request], kind: str) -> dict[str, Series]:
    """Give what is predicted at every length, refused ones too: the declared peak, or the least time.

    A curve of which nothing is declared has an empty one, so that each has its colour in both charts.
    """
    several = len({request.dtype for request in requests}) > 1
    found: dict[str, Series] = {}
    for request in requests:
        speed = desk().speed(Probe(request.dtype, request.threads, request.device)) if kind == "time" else None
        for contestant in request.contestants:
            taken = predict(contestant, request)
            name = contestant.label + (f" · {request.dtype}" if several else "")
            found.setdefault(name, {})
            peak = declared_peak(contestant, request) if kind == "memory" else None
            if peak is not None:
                found[name] = {**found.get(name, {}), request.keys: float(peak)}
            if speed is not None:
                least = speed.seconds(taken.flops, taken.bytes_moved)
                found[name] = {**found.get(name, {}), request.keys: least}
    return found


def _pictures(
    panel: Panel, requests: Sequence[Request], rows: pd.DataFrame, refused: Mapping[tuple[str, int], str]
) -> None:
    alike = rows.query("alike")
    said = finding(_series(alike, "latency_s"), _noisy(alike))
    with st.container():  # also while it is empty, so that the charts below stay where they are
        if said is not None:
            st.markdown(f"**{layout.escape(said.say(panel.language))}**")
    lengths = sorted({request.keys for request in requests} | {int(length) for length in rows["kv_len"]})
    for column, kind in zip(st.columns(2, gap="medium"), _KINDS, strict=True):
        with column:
            _chart(panel, kind, rows, _predictions(requests, kind), lengths, refused)


def _chart(
    panel: Panel,
    kind: str,
    rows: pd.DataFrame,
    predicted: Mapping[str, Series],
    lengths: Sequence[int],
    refused: Mapping[tuple[str, int], str],
) -> None:
    words = translate.table(panel.language, "measure")
    series = _series(rows, _KINDS[kind][0])
    names = list(dict.fromkeys([*predicted, *series]))
    drawn = []
    for name in names:
        expected = predicted.get(name, {})
        why = [(length, expected[length], said) for (one, length), said in refused.items()
               if one == name and length in expected]  # fmt: skip
        curve = _curve(name, kind, rows, series.get(name, {}), expected, lengths)
        drawn.append(curve._replace(refused=why))
    crosses = {}
    alike = set(rows.query("alike")["curve"])
    compared = {name: held for name, held in series.items() if name in alike}
    for cross in sorted(crossings(compared), key=lambda one: one.length)[:_MOST_CROSSES]:
        fields = {"one": _plain(cross.faster), "other": _plain(cross.slower), "length": units.number(cross.length, 2)}
        crosses[panel.title("crossing", **fields)] = (cross.length, cross.value)
    figure = curves(
        drawn,
        x_title=panel.title("axis.cache" if panel.settled.view.decodes else "axis.length"),
        predicted=words[_mark(kind)],
        fitted=panel.title("fitted"),
        refused=words["not_run"],
        noisy=words["hollow"],
        label=_UNITS[kind][0],
        base=_UNITS[kind][1],
        crossings=crosses,
        ticks=(lengths, [units.short_length(length) for length in lengths]),
    )
    numbers = "; ".join(
        f"{one.name}: {_last(kind, series.get(name, {}))}" for name, one in zip(names, drawn, strict=True)
    )
    plot(
        figure, key=f"benchmark.sweep.{kind}", label=words[kind], alt=f"{words[kind]}. {numbers}", caption=words[kind],
        words=translate.table(panel.language, "plot"), height=figure["layout"]["height"],
    )  # fmt: skip


def _mark(kind: str) -> str:
    return "predicted" if kind == "memory" else "least"


def _last(kind: str, series: Series) -> str:
    """Say a curve in numbers: its last point."""
    if not series:
        return "–"
    length = max(series)
    value = units.binary_bytes(series[length]) if kind == "memory" else units.seconds(series[length])
    return f"{units.count(length)} → {value}"


def _curve(
    name: str, kind: str, rows: pd.DataFrame, series: Series, predicted: Series, lengths: Sequence[int]
) -> Curve:
    """Give one curve, its power of the length in its name and as a line over all the lengths."""
    own = {int(row["kv_len"]): row for row in rows.to_dict("records") if row["curve"] == name}
    xs = sorted(series)
    _, low, high = _KINDS[kind]
    fit = power(series)
    ends = {end: [_number(own[x][end], series[x]) for x in xs] for end in {low, high}}
    hints = set(_noisy(rows)) if kind == "time" else set()
    noisy = [(name, x) in hints for x in xs]
    line = None if not predicted else (sorted(predicted), [predicted[x] for x in sorted(predicted)])
    title = _plain(name) if fit is None else f"{_plain(name)} ∝ L<sup>{fit.exponent:.2f}</sup>"
    # Over all lengths: below those that it was fitted to, one sees where the power stops to hold.
    fitted = None if fit is None else (lengths, [fit.at(x) for x in lengths])
    return Curve(title, xs, [series[x] for x in xs], ends[low], ends[high], noisy, line, fitted)


def _number(value: Any, fallback: float) -> float:
    return fallback if pd.isna(value) else float(value)


def _plain(name: str) -> str:
    """Give a name without what Plotly would take for markup: it may come from somebody's file."""
    return name.replace("<", "‹").replace(">", "›")


def _take_home(panel: Panel, held: pd.DataFrame) -> None:
    """Offer the table, to look at and to take along."""
    opened = layout.fold(panel.title("data.title"), icon=":material/table:", key="benchmark.data")
    if opened is None:
        return
    opened.dataframe(held, hide_index=True)
    with opened.container(horizontal=True):
        for kind, give in (("csv", table.to_csv), ("json", table.to_json)):
            st.download_button(
                panel.title(f"data.{kind}"), give(held), f"attnviz-benchmark.{kind}", key=f"benchmark.{kind}",
                icon=":material/download:", on_click="ignore",
            )  # fmt: skip


def _upload(panel: Panel) -> None:
    """Offer to take in results of another day or machine."""
    opened = layout.fold(panel.title("other.title"), icon=":material/upload_file:", key="benchmark.other")
    if opened is not None:
        opened.file_uploader(panel.title("other.file"), ["csv", "json"], accept_multiple_files=True, key=_FILES)


def _loaded(panel: Panel, requests: Sequence[Request]) -> pd.DataFrame | None:
    """Give the results taken in, each curve named with its hardware; what is no table is refused.

    What was measured with other settings than the page's says so in its name, and is compared with nothing.
    """
    tables = []
    settings = table.frame(requests[:1], [Failure("cancelled")])[list(table.SETTINGS)].iloc[0]
    for file in (st.session_state.get(_FILES) or [])[:_MOST_FILES]:
        try:
            rows = table.read(file.getvalue())
        except Refusal as refused:
            layout.refusal(refused, panel.language)
            continue
        where = rows["hardware"].fillna(rows["device"]) + " · " + rows["date"].fillna("")
        others = [_differing(row, settings) for row in rows.to_dict("records")]
        curve = rows["label"] + " · " + rows["dtype"] + " · " + where + pd.Series(others, dtype="string")
        tables.append(rows.assign(curve=curve, alike=[not one for one in others]))
    return pd.concat(tables, ignore_index=True) if tables else None


def _differing(row: Mapping[str, Any], settings: "pd.Series") -> str:
    """Give the settings of a row that are not the page's, as a piece of a curve's name."""
    known = {name: "–" if pd.isna(row[name]) else row[name] for name in table.SETTINGS}
    found = [f"{name}={value}" for name, value in known.items() if value != settings[name]]
    return f" · {', '.join(found)}" if found else ""
