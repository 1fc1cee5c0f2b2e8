"""The steps that bring a store's tables up to date, one file per step."""
