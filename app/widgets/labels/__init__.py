"""Parts of screens about people's judgement: ranking, agreement, checks, decisions."""
