"""What models learn. `config`, `launch` and `supervisor` need no torch; everything else runs in the worker's child."""
