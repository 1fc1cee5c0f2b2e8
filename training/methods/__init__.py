"""Other methods beside PPO, through TRL's trainers: SFT, DPO, RLOO, and the table of them all."""
