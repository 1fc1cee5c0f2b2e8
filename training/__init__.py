"""What models learn. The app asks through `launch` and measures with `measures`; all else runs in a worker's child."""
