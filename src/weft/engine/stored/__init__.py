"""What an engine has stored: read, exported, rebuilt."""
