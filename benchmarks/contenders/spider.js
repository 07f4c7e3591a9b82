// spider-rs through its npm package: robots.txt on, no delay, no callback a page, so that nothing crosses into Node.
// Usage: node spider.js [--pages=N] SEED HOST...
'use strict'
const { Website } = require('@spider-rs/spider-rs')

async function main(words) {
  const limit = words[0].startsWith('--pages=') ? Number(words.shift().slice(8)) : 0
  const [seed, ...hosts] = words
  const website = new Website(seed)
    .withBudget(limit ? { '*': limit } : null)
    .withRespectRobotsTxt(true)
    .withUserAgent('bench')
    .withDelay(0)
    .withExternalDomains(hosts)
    .build()
  const start = process.hrtime.bigint()
  await website.crawl()
  const seconds = Number(process.hrtime.bigint() - start) / 1e9
  console.log(JSON.stringify({ pages: website.getLinks().length, seconds }))
}

main(process.argv.slice(2))
