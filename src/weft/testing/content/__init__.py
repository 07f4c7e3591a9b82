"""What the pages of the synthetic web hold."""
