"""What people do on the screens, without how it looks: each asks who is looking, and calls a use case."""
