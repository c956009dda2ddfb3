"""Plotly figures from arrays and words; no torch and no Streamlit."""
