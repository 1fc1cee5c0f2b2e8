"""The app's only door to training: configurations, queueing, finding, starting a worker; no torch."""
