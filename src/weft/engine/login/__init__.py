"""Logins of crawls: the form that is read and sent, and the session that comes of it."""
