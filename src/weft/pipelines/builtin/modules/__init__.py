"""The pipeline `modules`: git repositories → clone → enrich → analyse, outdated → a catalogue, thumbnails, a report."""
