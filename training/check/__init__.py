"""What can be known of a PPO run before it starts: memory, roles, a sample, one step."""
