"""The types that user code receives and returns (Page, Selected, Request), and how it is loaded in a parser child."""
