"""How screens and commands say things: plain functions from records to words."""
