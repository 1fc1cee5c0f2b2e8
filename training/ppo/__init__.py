"""PPO: the loop, the rollout, the update, the four roles, and the run around them."""
