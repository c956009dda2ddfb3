"""What all pages look like beyond Streamlit's theme."""

# Streamlit leaves a hand's width above the first element; a projector has no room to spare below the navigation.
# It stands in the head from the start, so that nothing jumps, and before Streamlit's own rules: ``:root`` lets it
# win over them.
STYLE = """<style>
:root [data-testid="stMainBlockContainer"] { padding: 4.25rem 2rem 3rem; max-width: 100rem; }
:root [data-testid="stMainBlockContainer"] h1 { padding: 0; font-size: 1.9rem; }
:root [data-testid="stButtonGroup"] > div { flex-wrap: wrap; row-gap: 0.25rem; }
:root .st-key-attention-stage button { padding-inline: 0.6rem; }
:root [data-testid="stMetricValue"] { font-size: 1.75rem; }
:root [data-testid="stSidebar"] { min-width: 16rem; max-width: 17.5rem; }
:root [data-testid="stSidebarUserContent"] { padding-bottom: 2rem; }
:root [data-testid="stSidebar"] [data-testid="stButtonGroup"] button { padding-inline: 0.7rem; }
:root [data-testid="stSidebarUserContent"] h3 { padding-bottom: 0; }
:root [data-testid="stMarkdownContainer"]:has(> table) { overflow-x: auto; }
:root [data-testid="stCaptionContainer"]:has(a) { opacity: 0.85; }
:root [data-testid="stMarkdownContainer"] > table:has(th:nth-child(6)) :is(th, td) { padding-inline: 0.5rem; }
@media (max-width: 640px) { :root [data-testid="stMainBlockContainer"] { padding: 4.25rem 1rem 3rem; } }
@media (prefers-reduced-motion: reduce) { * { animation-duration: 0.01ms !important; transition: none !important; } }
@media print { :root [data-testid="stSidebar"], :root [data-testid="stHeader"] { display: none !important; } }
</style>"""
