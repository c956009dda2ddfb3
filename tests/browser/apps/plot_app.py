"""A small app with two curves that follow a live slider, served as the real app is."""

import streamlit as st

from pages.ui import live
from pages.ui.plot.asset import asset_routes
from tests.browser.apps.curve import picture

app = st.App("plot_page.py", routes=[*live.make_routes({"curve": live.Figure(picture)}), *asset_routes()])
