"""The page loop: claim → fetch → extract → store → finish, over any frontier."""
