"""The dashboard of the scrape service: pages for people, live, without a build step and with nothing from elsewhere."""
