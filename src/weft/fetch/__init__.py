"""Fetches over HTTP, and honours what a site asks for (robots.txt, cookies, delays)."""
