"""What the files of a module say."""
