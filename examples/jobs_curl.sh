#!/bin/sh
# A scrape in the background with curl alone: submit, look until it has ended, take the pages.
#
#     weft serve --email you@example.com          # in another terminal
#     sh examples/jobs_curl.sh http://localhost:8000 https://example.com
set -eu
[ $# -eq 2 ] || { sed -n '2,5p' "$0" | cut -c3- >&2; exit 1; }
value() { sed -n "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p"; } # of a member of a small JSON object

order="{\"url\": \"$2\", \"max_depth\": 1, \"max_pages\": 10}"
id=$(curl -sSf -H 'Content-Type: application/json' -d "$order" "$1/scraping/async-scrape" | value task_id)
echo "task $id"
while :; do
  status=$(curl -sSf "$1/scraping/tasks/$id/status" | value status)
  echo "$status"
  case $status in COMPLETED | PARTIAL | FAILED | CANCELLED) break ;; esac
  sleep 0.5
done
curl -sSf "$1/scraping/tasks/$id/results?format=jsonl" # one JSON object a line
