"""What is remembered: records, tables, the store, files in and out.

Code only. Databases, run folders, models and exports live in the home folder (see `data.files.paths`).
"""
