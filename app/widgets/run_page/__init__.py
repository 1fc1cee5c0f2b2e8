"""The page of one run as a table of panels."""
