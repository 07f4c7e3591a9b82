"""Where the service keeps what in its data dir."""

STORE = "jobs.db"  # tasks, webhooks and sites
ENGINE = "engine"  # the engine's folder
