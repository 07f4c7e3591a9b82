"""Decides which of the URLs found a crawl wants. A URL is judged at two points, before and after the seen set.

Before it, what the page wrote becomes canonical URLs, each once (`AdmissionRules.candidates`), without the recently
seen links (`recent_links`). After it, the few new URLs are judged by scope, patterns, depth and traps
(`AdmissionRules.sift`, or `refusal` for one URL). The frontier itself refuses what depends on its own state: a full
queue, or a robots.txt.
"""
