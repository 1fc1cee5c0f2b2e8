"""The web server: Streamlit behind a gate, accounts, downloads, and the processes beside it."""
