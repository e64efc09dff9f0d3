// The console's script: live parts, keys, copying, theme. Pages work without it.

const live = document.querySelector("#live[data-live]");

// Make `old` like `next`, changing only what differs: focus, scrolling and open details stay.
function morph(old, next) {
  if (old.nodeType !== next.nodeType || old.nodeName !== next.nodeName) {
    old.replaceWith(next.cloneNode(true));
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) return;
  for (const { name } of [...old.attributes]) {
    if (!next.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of [...next.attributes]) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  morphChildren(old, next);
}

function morphChildren(old, next) {
  const before = [...old.childNodes];
  const after = [...next.childNodes];
  after.forEach((node, at) => {
    if (at < before.length) morph(before[at], node);
    else old.append(node.cloneNode(true));
  });
  before.slice(after.length).forEach((node) => node.remove());
}

function follow() {
  const at = location.pathname + location.search;
  const source = new EventSource("/live?at=" + encodeURIComponent(at));
  source.onmessage = (event) => {
    const parsed = new DOMParser().parseFromString(event.data, "text/html");
    morphChildren(live, parsed.body);
    live.dataset.seen = String(Number(live.dataset.seen || 0) + 1);
  };
  source.addEventListener("gone", () => source.close());
  source.onerror = () => {
    if (!live.querySelector(".lost")) {
      const strip = document.createElement("div");
      strip.className = "strip bad lost";
      strip.setAttribute("role", "alert");
      strip.textContent = "The console does not answer: what you see may be old. Trying again …";
      live.prepend(strip);
    }
  };
  return source;
}

// A page that nobody sees asks for nothing.
if (live) {
  let source = document.hidden ? null : follow();
  document.addEventListener("visibilitychange", () => {
    if (document.hidden && source) {
      source.close();
      source = null;
    } else if (!document.hidden && !source) {
      source = follow();
    }
  });
}

// Light and dark: the server writes what the cookie says, so that no page flashes.
document.querySelector("#theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  document.cookie = `theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict`;
});

// Keys.
const help = document.querySelector("#help");
const openHelp = () => help.showModal();
document.querySelector("#keys").addEventListener("click", openHelp);
const goTo = { o: "/", t: "/topics", g: "/groups", d: "/dead", l: "/delayed", x: "/half", j: "/jobs", k: "/clients", c: "/cluster", u: "/access", r: "/requests", a: "/api" };
let afterG = 0;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, dialog")) return;
  if (event.key === "/") {
    event.preventDefault();
    document.querySelector("#q").focus();
  } else if (event.key === "?") {
    openHelp();
  } else if (afterG && event.timeStamp - afterG < 1500 && goTo[event.key]) {
    location.href = goTo[event.key];
  } else if (event.key === "g") {
    afterG = event.timeStamp;
    return;
  }
  afterG = 0;
});

// Copying, choosing all, typing a name before something that cannot be undone.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select and copy by hand";
  }
  setTimeout(() => (button.textContent = "Copy"), 1500);
});
document.addEventListener("change", (event) => {
  if (!event.target.matches("[data-all]")) return;
  const boxes = event.target.closest("table").querySelectorAll("tbody input[type=checkbox]");
  boxes.forEach((box) => (box.checked = event.target.checked));
});
for (const input of document.querySelectorAll("[data-typed]")) {
  const button = input.form.querySelector("button");
  const check = () => {
    button.disabled = input.value !== input.dataset.typed;
    button.title = button.disabled ? `Type ${input.dataset.typed} first` : "";
  };
  input.addEventListener("input", check);
  check();
}
