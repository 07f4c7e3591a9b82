import { boats } from "./boats.js";

const list = document.createElement("ul");
for (const boat of boats) {
  const link = Object.assign(document.createElement("a"), { href: `./more/${boat}`, textContent: `The ${boat} sails at noon` });
  list.append(Object.assign(document.createElement("li"), {}));
  list.lastChild.append(link);
}
document.querySelector("#harbour").append(Object.assign(document.createElement("h1"), { textContent: "Boats of today" }), list);
