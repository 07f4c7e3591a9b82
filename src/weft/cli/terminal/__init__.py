"""What every command prints and parses with: output, messages, flags for settings, live displays."""
