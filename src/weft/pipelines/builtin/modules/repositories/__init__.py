"""Copies of git repositories."""
