"""What a user's own code is handed and gives back (Page, Selected, Request), and how it reaches a parser child."""
