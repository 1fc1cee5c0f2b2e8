"""What people said, and what they were asked: projects, people, tasks, rankings, checks."""
