"""Forms: settings, files, and what follows of them before it is done."""
