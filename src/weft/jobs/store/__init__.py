"""Where tasks are kept: one contract, several backends."""
