"""Renders pages that need scripts: Chromium in a process of its own, which reaches the network only through a guard
proxy.

    messages   what the engine and the browser process send each other
    renderer   behind `fetch/contract.py`: fetches a page as always, and has it rendered where that is needed
    host       the browser process: starts browsers, gives them pages, ends them
    chromium   one Chromium: found, started, measured, ended with everything that it started
    devtools   its DevTools protocol, over a pipe
    tab        one page in it: loaded from what was fetched, its parts judged, read
    actions    what is done on the page: clicks, typing, waiting
    proxy      the guard: connects nobody to an address or host that no permitted request explains
    names      host names for the proxy

The page itself is fetched by the ordinary transport, and Chromium receives that response: a rendered page costs its
site no second request. Chromium requests the parts of the page, and each request is judged before it is sent.
"""
