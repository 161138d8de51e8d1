// The keyboard: / searches, g and a letter open a page, j and k move between rows. The mouse can do all of this, too.
// ? and Ctrl-K open a palette of pages, actions, topics (asked by what is typed), and filters that were saved in this browser.
import {Choices} from "./times.js";

const SAVED = "filters";  // in localStorage: [{name, url}]
const MOST_SAVED = 50;
const ACTIONS = [  // what a user may do, its name, and the page of it
  ["create", "Create a topic or channel", "/lookup"], ["delete", "Remove a topic without a node", "/lookup"],
  ["drain", "Drain a node", "/nodes"], ["pause", "Pause a tube", "/tubes"], ["cancel", "Cancel a task", "/tasks"],
];
const LONGEST = 1500;  // ms between g and its letter
const pages = [...document.querySelectorAll("header nav[aria-label=Pages] a[data-key]")];

let going = 0;  // ms of event time until which a letter opens a page

function typing(target) {
  return target.closest("input:not([type=radio]), textarea, select, [contenteditable]") !== null;
}

function step(by) {
  const links = [...document.querySelectorAll("main tbody th a, main article[tabindex]")];
  if (!links.length) return;
  const at = links.indexOf(document.activeElement);
  links[at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, at + by))].focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  if (["Shift", "CapsLock"].includes(event.key)) return;
  if (event.timeStamp < going) {
    going = 0;
    pages.find((one) => one.dataset.key === event.key)?.click();
    return;
  }
  if (event.key === "g") going = event.timeStamp + LONGEST;
  else if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else if (event.key === "?") open();
  else if (event.key === "/") {
    const field = document.querySelector("input[type=search]");
    if (!field) return;
    field.focus();
    field.select();
  } else return;
  event.preventDefault();
});

// The palette

const {base, may} = document.body.dataset;
const palette = document.createElement("dialog");
palette.id = "palette";
palette.ariaLabel = "Find";
palette.innerHTML = `<article><input role="combobox" aria-label="Page, action, topic or saved filter" aria-expanded="true" aria-controls="found"
 aria-autocomplete="list" autocomplete="off" spellcheck="false" placeholder="Page, action, topic or saved filter" maxlength="64">
<ul id="found" role="listbox" aria-label="Matches"></ul><small><kbd>/</kbd> goes to the filter, <kbd>j</kbd> and <kbd>k</kbd> to other rows.
 <kbd>Ctrl</kbd> <kbd>K</kbd> opens this list everywhere. <kbd>Delete</kbd> removes a saved filter.</small></article>`;
document.body.append(palette);
const input = palette.querySelector("input"), list = palette.querySelector("ul");
const fixed = [
  ...pages.map((one) => ({name: one.firstChild.textContent, url: one.pathname, kind: `Page, g ${one.dataset.key}`})),
  ...ACTIONS.filter(([action]) => may.split(" ").includes(action)).map(([, name, path]) => ({name, url: base + path, kind: "Action"})),
];
let chosen = 0, question = 0;

function saved() {
  try {
    const found = JSON.parse(Choices.get(SAVED));
    return Array.isArray(found) ? found.filter((one) => typeof one?.name === "string" && /^\/(?!\/)/.test(one?.url)).slice(0, MOST_SAVED) : [];
  } catch { return []; }
}

function keep(filters) {
  Choices.set(SAVED, JSON.stringify(filters.slice(-MOST_SAVED)));
  offerSaved();
}

function choose(place) {
  const options = [...list.children];
  chosen = options.length ? (place + options.length) % options.length : 0;
  options.forEach((one, at) => { one.ariaSelected = at === chosen; });
  options[chosen]?.scrollIntoView({block: "nearest"});
  input.setAttribute("aria-activedescendant", options[chosen]?.id ?? "");
}

function show(topics) {
  const wanted = input.value.trim().toLowerCase();
  const filters = saved().map((one) => ({...one, kind: "Saved filter"}));
  const found = [...filters, ...fixed].filter((one) => one.name.toLowerCase().includes(wanted));
  list.replaceChildren(...[...found, ...topics].map(({name, url, kind}, at) => {
    const option = document.createElement("li"), words = document.createElement("small");
    words.textContent = kind;
    option.append(name, " ", words);
    Object.assign(option, {id: `found-${at}`, role: "option"});
    Object.assign(option.dataset, {url, kind});
    return option;
  }));
  choose(0);
}

async function ask() {
  const mine = ++question, wanted = input.value.trim();
  show([]);
  if (!wanted) return;
  const answer = await fetch(`${base}/names?q=${encodeURIComponent(wanted)}`, {headers: {Accept: "application/json"}}).catch(() => null);
  if (mine !== question || !answer?.ok) return;
  show((await answer.json()).topics.map((name) => ({name, url: `${base}/topics/${encodeURIComponent(name)}`, kind: "Topic"})));
}

function open() {
  input.value = "";
  show([]);
  palette.showModal();
}

document.addEventListener("keydown", (event) => {
  if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
  event.preventDefault();
  if (!palette.open) open();
});
input.addEventListener("input", ask);
input.addEventListener("keydown", (event) => {
  const option = list.children[chosen];
  if (event.key === "ArrowDown") choose(chosen + 1);
  else if (event.key === "ArrowUp") choose(chosen - 1);
  else if (event.key === "Enter" && option) location.href = option.dataset.url;
  else if (event.key === "Delete" && option?.dataset.kind === "Saved filter" && input.selectionStart === input.value.length) {
    keep(saved().filter((one) => one.url !== option.dataset.url));
    show([]);
  } else return;
  event.preventDefault();
});
list.addEventListener("click", (event) => {
  const option = event.target.closest("li");
  if (option) location.href = option.dataset.url;
});

// Beside the filter field: those that were saved, and a button to save this one.
const beside = document.getElementById("saved");

function offerSaved() {
  if (!beside) return;
  const select = beside.querySelector("select");
  select.replaceChildren(new Option("Saved filters", ""), ...saved().map(({name, url}) => new Option(name, url)));
  select.hidden = select.options.length === 1;
}

if (beside) {
  beside.hidden = false;
  offerSaved();
  beside.querySelector("select").addEventListener("change", (event) => { if (event.target.value) location.href = event.target.value; });
  beside.querySelector("button").addEventListener("click", () => {
    const name = prompt("Name of this filter, with its order")?.trim().slice(0, 60);
    if (name) keep([...saved().filter((one) => one.name !== name), {name, url: location.pathname + location.search}]);
  });
}
