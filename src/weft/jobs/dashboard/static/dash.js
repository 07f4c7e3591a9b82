// Keeps an open page current. Everything works without it: pages are whole when they come, and forms are forms.
// Texts are only ever put in as text; the one place that takes HTML takes this server's own pages (`pageOf`).

const trusted = globalThis.trustedTypes?.createPolicy("weft", { createHTML: (text) => text });
const body = document.body;
const link = document.querySelector("[data-link]");
const said = document.querySelector("[data-said]");
const REFRESH_MS = 2000; // at least so long between two looks at the whole page

const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const put = (node, text) => { if (node && node.textContent !== String(text)) node.textContent = text; };
const set = (node, name, value) => { if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value); };
const field = (root, name) => root.querySelector(`[data-f="${name}"]`);
const announce = (text) => put(said, text);

// ── times ──

function ago(then) {
  const seconds = Math.max(0, Math.round((Date.now() - then) / 1000));
  if (seconds < 5) return "now";
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= length) return `${Math.floor(seconds / length)} ${unit} ago`;
  }
  return `${seconds} s ago`;
}

function tellTimes() {
  for (const node of all("time[data-ago]")) {
    const then = Date.parse(node.dateTime);
    if (!Number.isNaN(then)) put(node, ago(then));
  }
}

// ── parts of the page ──

function drawBar(root, one) {
  const bar = root.querySelector("[data-bar]");
  if (!bar) return;
  set(bar, "aria-valuenow", one.percent);
  all("rect", bar).forEach((rect, at) => {
    set(rect, "x", one.segments[at][0]);
    set(rect, "width", one.segments[at][1]);
  });
}

function drawRow(row, one) {
  const state = row.querySelector(".state");
  set(state, "data-state", one.state);
  set(row, "data-state", one.state);
  put(state, one.label);
  drawBar(row, one);
  put(field(row, "percent"), `${one.percent} %`);
  put(field(row, "rate"), one.rate || "–");
  for (const name of ["done", "known", "errors", "took"]) put(field(row, name), one[name]);
  field(row, "errors").classList.toggle("bad", one.errors !== "0");
}

function drawFigures(figures) {
  for (const root of all("[data-figures]")) {
    for (const node of all("[data-f]", root)) {
      const value = figures[node.dataset.f];
      if (value !== undefined) put(node, value);
    }
  }
}

function drawChart(one) {
  const root = document.querySelector(`[data-chart="${one.name}"]`);
  set(root.querySelector(".line"), "d", one.line);
  set(root.querySelector(".area"), "d", one.area);
  set(root.querySelector("svg"), "aria-label", `${one.title}: ${one.said}, over ${one.length || "no time yet"}`);
  for (const name of ["top", "half", "zero", "begin", "middle", "length", "said"]) put(field(root, name), one[name]);
}

function drawLatest(events) {
  const list = document.querySelector("[data-latest]");
  const known = new Map(all("tr", list).map((row) => [row.dataset.number, row]));
  const template = document.querySelector("template[data-row]").content.firstElementChild;
  const rows = events.map((one) => {
    const row = known.get(String(one.number)) ?? template.cloneNode(true);
    if (row.dataset.number !== String(one.number)) {
      row.dataset.number = one.number;
      row.dataset.kind = one.kind;
      for (const name of ["status", "host", "path", "depth", "size"]) put(field(row, name), one[name]);
      put(field(row, "title"), one.error || one.title || (one.kind === "page" ? "Untitled page" : ""));
      if (one.kind === "page") field(row, "title").href = `/tasks/${list.dataset.of}/pages/${one.number}`;
      else field(row, "title").removeAttribute("href"); // of the template's row
      if (one.link) field(row, "link").href = one.link;
      const at = field(row, "at");
      at.dateTime = one.at;
      at.title = one.clock;
    }
    put(field(row, "at"), ago(Date.parse(one.at)));
    return row;
  });
  if (rows.some((row, at) => row !== list.children[at])) keepFocus(list, () => list.replaceChildren(...rows));
  document.querySelector("[data-none]").hidden = rows.length > 0;
}

function drawKinds(kinds) {
  const list = document.querySelector("[data-kinds]");
  const now = kinds.map((one) => `${one.name} ${one.count}`).join();
  document.querySelector("[data-no-kinds]").hidden = kinds.length > 0;
  if (list.dataset.now === now) return;
  list.dataset.now = now;
  keepFocus(list, () => list.replaceChildren(...kinds.map((one) => kindOf(list.dataset.of, one))));
}

function kindOf(task, one) {
  const item = document.createElement("li");
  const title = document.createElement("a");
  title.href = `/tasks/${task}/pages?kind=error&class=${one.name}`;
  title.textContent = one.title;
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  set(svg, "viewBox", "0 0 100 1");
  set(svg, "preserveAspectRatio", "none");
  set(svg, "aria-hidden", "true");
  set(rect, "width", one.share);
  set(rect, "height", 1);
  svg.append(rect);
  const count = document.createElement("b");
  count.textContent = one.count;
  item.append(title, svg, count);
  return item;
}

function selectorOf(node) {
  const is = (name, value) => `[${name}="${CSS.escape(value)}"]`;
  if (node.hasAttribute("href")) return is("href", node.getAttribute("href"));
  if (node.name) return is("name", node.name) + is("value", node.value);
  return node.form ? `form${is("action", node.form.getAttribute("action"))} ${node.localName}` : null;
}

// Whoever stands in a part with the keyboard stands there when it was drawn anew.
function keepFocus(root, draw) {
  const focused = root.contains(document.activeElement) ? document.activeElement : null;
  const where = focused && selectorOf(focused);
  const action = focused?.closest("tr[data-site]")?.dataset.site;
  const row = action === undefined ? "" : `[data-site="${CSS.escape(action)}"] `;
  const isAction = focused?.closest(".actions") != null;
  draw();
  if (!focused) return;
  if (focused.isConnected) focused.focus();
  else if (where && root.querySelector(where)) root.querySelector(where).focus();
  // A button that is gone has done its work: the one in its place is next, or the heading where there is none.
  else if (isAction) (root.querySelector(`${row}.actions button`) ?? document.querySelector("main")).focus({ preventScroll: true });
}

// ── the whole page again, part by part ──

function pageOf(text) {
  return new DOMParser().parseFromString(trusted ? trusted.createHTML(text) : text, "text/html");
}

let refreshing = 0;
let refreshedAt = performance.now();

function refresh() {
  if (refreshing) return;
  const wait = Math.max(0, refreshedAt + REFRESH_MS - performance.now());
  refreshing = setTimeout(async () => {
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" } });
      if (answer.redirected) location.reload(); // signed out meanwhile
      else if (answer.ok) replaceParts(pageOf(await answer.text()));
    } catch {
      // the service is away: the stream says so, and comes back
    } finally {
      refreshing = 0;
      refreshedAt = performance.now();
      if (isOld()) refresh(); // it was a page that the server had made a moment before
    }
  }, wait);
}

function replaceParts(page) {
  if (document.querySelector("dialog")) return; // it asks about a form of this page: when it is closed the page comes again
  for (const part of all("[data-part]")) {
    const other = page.querySelector(`[data-part="${part.dataset.part}"]`);
    if (other && other.innerHTML !== part.innerHTML) keepFocus(part, () => part.replaceChildren(...other.childNodes));
  }
  document.title = page.title;
  tellTimes();
}

// ── what streams say ──

let counts = "";

// Whether the list was made when there were other tasks, or in other states.
function isOld() {
  const list = document.querySelector("[data-counts]");
  return list !== null && counts !== "" && list.dataset.counts !== counts;
}

function onTasks(now) {
  const rows = new Map(now.rows.map((one) => [one.id, one]));
  for (const row of all("tr[data-task]")) {
    const one = rows.get(row.dataset.task);
    if (one) drawRow(row, one);
  }
  drawFigures(now.figures);
  const problem = document.querySelector("[data-problem]");
  if (problem && problem.hidden !== now.is_healthy) refresh();
  if (problem) problem.hidden = now.is_healthy;
  counts = JSON.stringify(now.counts);
  if (isOld()) refresh();
}

function onTask(now) {
  drawBar(document, now);
  put(document.querySelector('h2 [data-f="percent"]'), `${now.percent} %`);
  drawFigures(now.figures);
  now.charts.forEach(drawChart);
  drawLatest(now.latest);
  drawKinds(now.error_kinds);
  if (now.state !== body.dataset.state) {
    body.dataset.state = now.state;
    announce(`The task is ${now.label.toLowerCase()}${now.finish ? `: ${now.finish}` : ""}.`);
    refresh();
  }
  if (now.is_over) {
    body.dataset.over = "";
    close("over");
  }
}

// ── the stream: one, and only while the page is seen, since a browser has six connections to a server ──

let stream = null;
const isLive = () => body.dataset.stream !== undefined;

function show(is, text) {
  link.hidden = false;
  link.dataset.is = is;
  put(link, text);
}

function close(is) {
  stream?.close();
  stream = null;
  if (is === "over") show("over", "Ended");
}

function open() {
  if (stream || body.dataset.over !== undefined || !isLive()) return;
  stream = new EventSource(body.dataset.stream);
  stream.onopen = () => show("live", "Live");
  stream.onerror = () => {
    show("away", "Reconnecting");
    if (stream?.readyState === EventSource.CLOSED) {
      stream = null;
      setTimeout(open, 5000);
      refresh(); // who is signed out is sent to sign in
    }
  };
  stream.addEventListener("tasks", (event) => onTasks(JSON.parse(event.data)));
  stream.addEventListener("task", (event) => onTask(JSON.parse(event.data)));
}

document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
addEventListener("pagehide", () => close());
addEventListener("pageshow", () => { if (!document.hidden) open(); });

// ── forms ──

function confirmed(form, submitter) {
  const dialog = document.createElement("dialog");
  const text = document.createElement("p");
  text.textContent = form.dataset.confirm;
  text.id = "confirm-text";
  set(dialog, "aria-labelledby", text.id);
  const actions = document.createElement("form");
  actions.method = "dialog";
  actions.className = "actions";
  const back = document.createElement("button");
  back.textContent = "Back";
  const go = document.createElement("button");
  go.textContent = form.querySelector("button").textContent;
  go.className = "danger";
  go.value = "go";
  actions.append(back, go);
  dialog.append(text, actions);
  body.append(dialog);
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (dialog.returnValue === "go") {
      delete form.dataset.confirm;
      form.requestSubmit(submitter);
    }
    else {
      form.querySelector("button").focus();
      if (isLive()) refresh();
    }
  });
  dialog.showModal();
}

// A button of a part that is kept current: the page stays, and with it the keyboard's focus.
async function act(form, submitter) {
  submitter?.focus();
  try {
    const answer = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)) });
    if (answer.ok && new URL(answer.url).pathname === location.pathname) {
      replaceParts(pageOf(await answer.text()));
      return;
    }
  } catch {
    // the service is away, as the browser will say
  }
  form.submit();
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.dataset.confirm) {
    event.preventDefault();
    confirmed(form, event.submitter);
  }
  else if (form.method === "post" && form.closest("[data-part] .actions")) {
    event.preventDefault();
    act(form, event.submitter);
  }
  const busy = event.submitter?.dataset.busy;
  if (busy) {
    set(event.submitter, "aria-busy", "true");
    put(event.submitter, busy);
    announce(busy);
  }
});

for (const choice of all(".filter select")) choice.addEventListener("change", () => choice.form.requestSubmit());
document.querySelector("[data-focus]")?.focus();
setInterval(tellTimes, 10000);
if (body.dataset.again) setInterval(() => { if (!document.hidden) refresh(); }, 1000 * Number(body.dataset.again));
tellTimes();
if (!document.hidden) open();
