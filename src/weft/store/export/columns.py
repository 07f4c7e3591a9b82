"""The columns of Common Crawl's index, whose names and types our Parquet files use.

Our crawls have no segments: `warc_segment` is the slot that wrote the file. `crawl` is the crawl's id; `subset` is
`warc` for pages and `crawldiagnostics` for the rest, and languages have three letters, as in Common Crawl.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache

from weft import urls
from weft.records import Row
from weft.store.export.surt import surt_key

HOST_COLUMNS = (
    "url_host_name", "url_host_tld", "url_host_2nd_last_part", "url_host_3rd_last_part", "url_host_4th_last_part",
    "url_host_5th_last_part", "url_host_registry_suffix", "url_host_registered_domain", "url_host_private_suffix",
    "url_host_private_domain", "url_host_name_reversed",
)  # fmt: skip
# name -> Arrow type
COLUMN_TYPES = (
    dict.fromkeys(("url_surtkey", "url", *HOST_COLUMNS, "url_protocol"), "string")
    | {"url_port": "int32", "url_path": "string", "url_query": "string"}
    | {"fetch_time": "timestamp", "fetch_status": "int16", "fetch_redirect": "string"}
    | dict.fromkeys(
        ("content_digest", "content_mime_type", "content_mime_detected", "content_charset", "content_languages"),
        "string",
    )
    | {"warc_filename": "string", "warc_record_offset": "int64", "warc_record_length": "int64"}
    | {"warc_segment": "string", "crawl": "string", "subset": "string"}
)
COLUMNS = tuple(COLUMN_TYPES)

_match_segment = re.compile(r"\d+/weft-[^-]*-(.+)-\d+\.warc\.gz").fullmatch
# ISO 639-1 to 639-3, of the languages that detection knows
_THREE_LETTER_LANGUAGES = {
    pair[:2]: pair[3:]
    for pair in (
        "af:afr ak:aka am:amh ar:ara az:aze be:bel bn:ben bg:bul ca:cat cs:ces zh:zho cy:cym da:dan "
        "de:deu el:ell en:eng eo:epo et:est eu:eus fa:fas fi:fin fr:fra ga:gle gl:glg gu:guj he:heb "
        "hi:hin hr:hrv hu:hun hy:hye id:ind is:isl it:ita jv:jav ja:jpn ka:kat kk:kaz km:khm kn:kan "
        "ko:kor la:lat lt:lit lv:lav mk:mkd ml:mal mn:mon mr:mar ms:msa mt:mlt my:mya ne:nep nl:nld "
        "no:nor or:ori pa:pan pl:pol pt:por ro:ron ru:rus si:sin sk:slk sl:slv sn:sna sq:sqi es:spa "
        "sr:srp sv:swe sw:swa ta:tam te:tel tl:tgl th:tha tk:tuk tr:tur uk:ukr ur:urd uz:uzb vi:vie "
        "yi:yid zu:zul"
    ).split()
}


def common_crawl_columns(
    row: Row, crawl_id: str, language: str | None = None, detected: str | None = None
) -> dict[str, object]:
    """A row under Common Crawl's names."""
    scheme, authority, rest = _split_url(row.url)
    path, mark, query = rest.partition("?")
    language = row.language or language or ""
    moved = 300 <= row.status < 400 and row.final_url != row.url
    return {
        "url_surtkey": surt_key(row.url),
        "url": row.url,
        **dict(zip(HOST_COLUMNS, _host_parts(urls.host_of(row.url)), strict=True)),
        "url_protocol": scheme,
        "url_port": _port_number(authority),
        "url_path": path,
        "url_query": query if mark else None,
        "fetch_time": datetime.fromtimestamp(row.fetched_at, UTC),
        "fetch_status": row.status,
        "fetch_redirect": row.final_url if moved else None,
        "content_digest": row.digest.removeprefix("sha1:") or None,
        "content_mime_type": row.content_type or None,
        "content_mime_detected": detected,
        "content_charset": row.charset or None,
        "content_languages": _THREE_LETTER_LANGUAGES.get(language, language) or None,
        "warc_filename": row.warc_file or None,
        "warc_record_offset": row.warc_offset if row.warc_file else None,
        "warc_record_length": row.warc_length if row.warc_file else None,
        "warc_segment": _segment_name(row.warc_file),
        "crawl": crawl_id,
        "subset": "warc" if 200 <= row.status < 300 else "crawldiagnostics",
    }


@lru_cache(maxsize=4096)
def _host_parts(host: str) -> tuple[str | None, ...]:
    """The values of HOST; an address has no parts."""
    registry, registered = urls.registered(host)
    domain = urls.domain(host)
    if host.startswith("[") or (domain == host and host.replace(".", "").isdigit()):
        return (host, *[None] * (len(HOST_COLUMNS) - 1))
    parts = host.rstrip(".").split(".")
    last = [*reversed(parts[-5:]), *[None] * (5 - len(parts[-5:]))]
    suffix = urls.suffix(host)
    private = domain if suffix and domain != suffix else None
    return (host, *last, registry or None, registered or None, suffix or None, private, ".".join(reversed(parts)))


def _split_url(url: str) -> tuple[str, str, str]:
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    return scheme, authority, slash + path


def _port_number(authority: str) -> int | None:
    _, _, port = authority.rpartition(":")
    return int(port) if port.isdigit() and not authority.endswith("]") and ":" in authority else None


@lru_cache(maxsize=1024)
def _segment_name(name: str) -> str | None:
    match = _match_segment(name)
    return match[1] if match else None
