"""The dashboard of the scrape service: live HTML pages without a build step and without resources from other hosts."""
