"""The routes that Firecrawl's clients call, `/v1` and `/v2`, as a translation to tasks: no state of its own."""
