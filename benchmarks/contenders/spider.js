// spider-rs through its npm package: robots.txt on, no delay, no callback a page, so that nothing crosses into Node.
// Usage: node spider.js SEED HOST...
'use strict'
const { Website } = require('@spider-rs/spider-rs')

async function main([seed, ...hosts]) {
  const website = new Website(seed)
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
