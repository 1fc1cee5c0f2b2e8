"""What every page is built of: its head, problems, our components, the account."""
