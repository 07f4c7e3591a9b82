"""All that must run: `weft.system.supervisor.Supervisor` keeps it running."""
