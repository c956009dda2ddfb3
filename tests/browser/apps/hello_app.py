"""A page that does almost nothing: the harness is tested on it."""

import streamlit as st

st.title("Hello")
if st.button("Count"):
    st.write("counted")
if st.query_params.get("fail") == "console":
    st.html("<script>console.error('told')</script>", unsafe_allow_javascript=True)
if st.query_params.get("fail") == "request":
    st.html("<img src='http://192.0.2.1/x.png'>")
