"""Parts of screens about policies: what they gained, which is best, what they wrote, token by token."""
