"""Scrapy's spiders, unmodified, in a crawl of Weft's. The only room that imports Scrapy, and Twisted for its errors."""
