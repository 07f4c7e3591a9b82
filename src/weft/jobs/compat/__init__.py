"""The routes that Firecrawl's clients call, `/v1` and `/v2`, translated to tasks. Keeps no state of its own."""
