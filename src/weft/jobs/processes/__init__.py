"""The processes of the service, and how a supervisor runs them."""
