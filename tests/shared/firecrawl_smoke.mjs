// What every version of the JavaScript client must be able to do against the service, as its users write it:
// node --experimental-websocket firecrawl_smoke.mjs SERVICE HOME HOLDING [WATCHES]
// HOLDING is a site as in holding_site.py.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [url, home, holding, watches] = process.argv.slice(2);
const where = createRequire(process.cwd() + "/").resolve("@mendable/firecrawl-js");
const loaded = await import(pathToFileURL(where));
const Firecrawl = loaded.default?.default ?? loaded.default;
const client = new Firecrawl({ apiKey: "fc-smoke", apiUrl: url });
const PAGES = 12;

async function watched(limit) {
  const job = await client.startCrawl(home, { limit });
  const watcher = client.watcher(job.id, { kind: "crawl", pollInterval: 300 });
  const found = [];
  let end;
  watcher.on("document", (one) => found.push(one.metadata.sourceURL));
  watcher.on("done", (one) => (end = one.status));
  await watcher.start();
  assert.equal(end, "completed");
  assert.equal(new Set(found).size, limit, `${found.length} documents of ${limit}`);
}

async function all() {
  assert.equal(typeof WebSocket, "function", "this node has no WebSocket");
  const page = await client.scrape(home, { formats: ["markdown", "html", "links"] });
  assert.ok(page.markdown && page.html && page.links.length && page.metadata.statusCode === 200);
  const job = await client.crawl(home, { limit: PAGES, scrapeOptions: { formats: ["markdown"] }, pollInterval: 1 });
  const urls = job.data.map((one) => one.metadata.sourceURL);
  assert.equal(job.status, "completed");
  assert.equal(new Set(urls).size, PAGES);
  assert.ok(Array.isArray((await client.getCrawlErrors(job.id)).errors));
  const word = randomUUID();
  const [held, frees] = [`${holding}/held?${word}`, `${holding}/frees?${word}`];
  const batch = await client.startBatchScrape([held], { options: { formats: ["markdown"] } });
  assert.equal((await client.startBatchScrape([frees], { appendToId: batch.id })).id, batch.id);
  let done;
  do {
    await new Promise((resolve) => setTimeout(resolve, 100));
    done = await client.getBatchScrapeStatus(batch.id);
  } while (done.status === "scraping");
  assert.deepEqual(new Set(done.data.map((one) => one.metadata.sourceURL)), new Set([held, frees]));
  assert.ok((await client.map(home)).links.some((one) => one.url === home));
  const running = await client.startCrawl(home, { limit: 1000, delay: 5 });
  assert.ok((await client.getActiveCrawls()).crawls.some((one) => one.id === running.id));
  assert.equal(await client.cancelCrawl(running.id), true);
  assert.equal((await client.getCrawlStatus(running.id)).status, "cancelled");
  await watched(PAGES + 1);
  const old = client.v1;
  assert.ok((await old.scrapeUrl(home, { formats: ["markdown"] })).markdown);
  assert.equal((await old.crawlUrl(home, { limit: PAGES }, 1)).data.length, PAGES);
  assert.ok(Array.isArray((await old.checkCrawlErrors(job.id)).errors));
  assert.ok(Array.isArray((await old.checkBatchScrapeErrors(batch.id)).errors));
  assert.ok((await old.mapUrl(home, {})).links.includes(home));
  const watcher = await old.crawlUrlAndWatch(home, { limit: PAGES + 2 });
  const seen = [];
  await new Promise((resolve) => {
    watcher.addEventListener("document", (event) => seen.push(event.detail));
    watcher.addEventListener("done", resolve);
    watcher.addEventListener("error", resolve);
  });
  assert.equal(watcher.status, "completed");
  assert.equal(seen.length, PAGES + 2);
}

if (watches) for (let number = 0; number < Number(watches); number++) await watched(2 + (number % 30));
else await all();
console.log("all of it");
process.exit(0);
