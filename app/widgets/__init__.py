"""Parts of screens that keep state of their own under a key."""
