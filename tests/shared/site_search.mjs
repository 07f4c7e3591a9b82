// Answers queries as the search box of a built site does: `node site_search.mjs SITE`, a JSON list of queries on stdin,
// a list of lists of page addresses on stdout, best first. Runs the site's own search worker.
import { readFileSync, readdirSync } from "node:fs"
import { join } from "node:path"
import vm from "node:vm"

const site = process.argv[2]
const scripts = join(site, "assets/javascripts")
const worker = readdirSync(join(scripts, "workers")).find((name) => /^search\..*\.js$/.test(name))
const queries = JSON.parse(readFileSync(0, "utf8"))
const SETUP = 0, READY = 1, QUERY = 2, RESULT = 3

const listeners = []
const context = {
  console, performance, setTimeout, clearTimeout, URL, TextEncoder, TextDecoder,
  importScripts: (...files) => files.forEach((file) => run(file.split("/assets/javascripts/").pop().replace(/^\/?/, ""))),
  addEventListener: (kind, listener) => kind === "message" && listeners.push(listener),
  location: new URL("http://localhost/assets/javascripts/workers/worker.js"),
  postMessage: (message) => waiting.shift()(message),
}
context.self = context.globalThis = context
const waiting = []
vm.createContext(context)

function run(name) {
  vm.runInContext(readFileSync(join(scripts, name), "utf8"), context)
}

function ask(message, answer) {
  return new Promise((resolve, reject) => {
    waiting.push((got) => (got.type === answer ? resolve(got.data) : reject(new Error(`message ${got.type}`))))
    listeners.forEach((listener) => listener({ data: message }))
  })
}

run(join("workers", worker))
const index = JSON.parse(readFileSync(join(site, "search/search_index.json"), "utf8"))
const options = { suggest: true }
await ask({ type: SETUP, data: { ...index, options } }, READY)
const found = []
for (const query of queries) {
  // The box completes the last word while one types.
  const { items } = await ask({ type: QUERY, data: query }, RESULT)
  found.push(items.map((item) => item[0].location.split("#")[0]))
}
console.log(JSON.stringify(found))
