"""What models learn: the app asks through `launch` and measures with `measures`; all else runs in a worker's child."""
