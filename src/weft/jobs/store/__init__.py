"""Stores tasks, webhooks, sites and progress in one SQLite file."""
