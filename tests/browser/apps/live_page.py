"""The page of ``live_app``: live sliders, a consumer of frames, and counters of what reached the server.

``?slow=0.5`` makes every run take that many seconds before it says anything.
"""

import time

import streamlit as st
from streamlit.components.v2 import component

from pages.ui.bus import Group, with_bus
from pages.ui.live_slider import live_slider

WORDS = {
    "box": "{label}: type a value",
    "help": "About {label}",
    "reset": "Set {label} back to {default}",
    "play": "Play {label}",
    "pause": "Pause {label}",
    "not_a_number": "“{text}” is not a number.",
    "not_whole": "“{text}” is not a whole number.",
    "out_of_range": "{text} is not between {low} and {high}.",
}
STOPS = [*range(1, 65), 96, 128, 192, 256, 384, 512, 1024, 2048, 4096]
MOST_X = 500  # a larger x is pulled down to this by the page, as dependent settings are

PICTURE = component(
    "toy_picture",
    html="<p data-part='picture'></p>\n<p data-part='problem'></p>",
    js=with_bus(
        """
export default function ({ data, parentElement }) {
  const picture = parentElement.querySelector("[data-part=picture]")
  const problem = parentElement.querySelector("[data-part=problem]")
  const group = globalThis.attnviz.group(data.group)
  globalThis.drawn ??= []
  const draw = (text, source) => {
    picture.textContent = text
    globalThis.drawn.push({ text, source, at: performance.now() })
    requestAnimationFrame(() => setTimeout(() => (globalThis.painted = { text, at: performance.now() })))
  }
  group.configure(data)
  picture.off?.()
  const offs = [
    group.on("frame", frame => draw(frame.header.parts.text.caption, "live")),
    group.on("problem", sentence => (problem.textContent = sentence ?? "")),
    group.on("settle", run => data.run >= run && draw(data.caption, "rerun")),
  ]
  picture.off = () => offs.forEach(off => off())
  if (!group.pending) draw(data.caption, "rerun")
  return () => picture.off()
}
"""
    ),
)

state = st.session_state
state.setdefault("runs", 0)
state.setdefault("got", [])
state.runs += 1
time.sleep(float(st.query_params.get("slow", 0)))
if "x" not in state:
    state.x = int(st.query_params.get("x", 20))
    state.n = 16


def take(name: str, value: float) -> None:
    """Keep a released value."""
    state.got.append(f"{name}={value!r}")
    state[name] = min(int(value), MOST_X) if name == "x" else int(value)


if st.button("set x to 7"):
    state.x = 7
if state.x != 20:
    st.query_params["x"] = str(state.x)
elif "x" in st.query_params:
    del st.query_params["x"]

group = Group("toy", "/live/toy", {"x": str(state.x), "n": str(state.n), "lang": "en"})
common = {"group": group, "words": WORDS}
x = live_slider(
    "x", "The x", state.x, low=0, high=100, step=1, default=20, unit="steps", help="Moves it.", typed_high=1000,
    key="slider_x", on_value=lambda value: take("x", value), **common,
)  # fmt: skip
n = live_slider(
    "n", "Length", state.n, low=1, high=4096, stops=STOPS, default=16, typed_high=100_000, key="slider_n",
    on_value=lambda value: take("n", value), **common,
)  # fmt: skip
PICTURE(key="picture", data={**group.data(), "caption": f"x={x} n={n}"})
free = live_slider("free", "Free", 0.5, low=0.0, high=1.0, step=0.1, key="slider_free", **common)
live_slider("dead", "Dead", 1, low=0, high=3, step=1, key="slider_dead", disabled=True, **common)
st.text(f"runs: {state.runs}")
st.text(f"got: {' '.join(state.got)}")
st.text(f"free: {free!r}")
