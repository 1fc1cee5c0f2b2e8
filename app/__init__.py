"""What people see, the web app and the command line: Streamlit lives only here, and torch never does."""
