"""Shared by all commands: output, messages, flags for settings, live displays."""
