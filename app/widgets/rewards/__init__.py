"""Parts of screens about reward models: the report, its charts, the scores."""
