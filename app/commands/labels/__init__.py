"""The words about people's judgement, from projects and files to snapshots."""
