"""The page of heatmap_app.py: the maps its address asks for, and what it heard of them."""

import json
import time

import streamlit as st

from pages.ui.bus import Group
from pages.ui.heatmap import WORD_KEYS, heatmap
from pages.ui.translate import table
from tests.browser.apps.heatmap_app import SIZES, parts

st.set_page_config(layout="wide")
st.html(
    "<style>[data-testid=stMainBlockContainer] { padding: 1.5rem 2rem; } header { display: none !important; }</style>"
)
query = st.query_params
state = st.session_state
state.setdefault("runs", 0)
state.runs += 1
time.sleep(float(query.get("slow", 0)))
language = query.get("lang", "en")
given = {name: query[name] for name in ("kind", "tokens", "scale", "range", "d", "answer") if name in query}
size = {name: str(query.get(name, usual)) for name, usual in SIZES.items()}
if "d" in state:
    given["d"] = state.d
params = {**given, **size, "lang": language}
group = Group("maps", "/live/maps" if "offline" not in query else "/nowhere/maps", params)
words = table(language, "heatmap")
assert set(words) == set(WORD_KEYS)


def take(chosen: object) -> None:
    """Keep what was selected."""
    state.selected = chosen
    state.setdefault("heard", []).append(chosen)


drawn = parts(params)
common = {"group": group, "words": words, "selected": state.get("selected")}
heatmap(
    drawn["main"], part="main", key="main", height=int(query.get("height", 520)), on_select=take,
    scale=float(query.get("text", 1)), **common,
)  # fmt: skip
if "strip" in query:
    heatmap(
        drawn["strip"], part="strip", key="strip", height=160, layout="strip", picks="map",
        chosen=state.get("stage", "s"), on_select=lambda chosen: state.update(stage=chosen and chosen["map"]), **common,
    )  # fmt: skip
st.text(f"runs: {state.runs}")
st.text(f"selected: {json.dumps(state.get('selected'))}")
st.text(f"heard: {len(state.get('heard', []))}")
st.text(f"stage: {state.get('stage')}")
if st.button("d to 7"):
    state.d = "7"
    st.rerun()
if st.button("forget"):
    state.selected = None
    st.rerun()
