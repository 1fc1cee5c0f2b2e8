"""One file per page, each with `render()`, which Streamlit runs as a page."""
