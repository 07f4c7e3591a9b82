import { createRoot } from "react-dom/client";
import { useEffect, useState } from "react";

const goods = ["lamp", "chair", "table"];

function Shop() {
  const [hint, setHint] = useState("");
  useEffect(() => setHint("Everything is in stock at the React shop."), []);
  return (
    <main>
      <h1>React shop</h1>
      <p>{hint}</p>
      <ul>{goods.map(one => <li key={one}><a href={`./more/${one}`}>A {one} that was built with care</a></li>)}</ul>
    </main>
  );
}

createRoot(document.getElementById("mount")).render(<Shop />);
