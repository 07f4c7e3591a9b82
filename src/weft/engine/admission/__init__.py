"""Which of the URLs that are found a crawl wants. They are judged at two stops, before and after the seen set.

Before it: what the page wrote becomes canonical URLs, each once (`AdmissionRules.candidates`), without those met lately
(`recent_links`). After it, for the few that are new: scope, patterns, depth and traps (`AdmissionRules.sift`,
or `refusal` for one). The frontier itself refuses what its own state decides: a queue that is full, or a robots.txt.
"""
