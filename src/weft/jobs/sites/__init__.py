"""Sites: saved jobs with a schedule, dependencies and a memory of their pages."""
