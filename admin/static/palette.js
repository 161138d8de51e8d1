// The command palette (Ctrl-K) and saved filters. It offers pages and actions (in the dialog), topics (asked by what is typed), and
// filters that were saved in this browser.
import {Choices} from "./times.js";

const SAVED = "filters";  // in localStorage: [{name, url}]
const MOST_SAVED = 50;

const palette = document.getElementById("palette"), input = palette.querySelector("input"), list = palette.querySelector("ul");
const fixed = [...list.querySelectorAll("li")].map((one) => ({name: one.textContent, url: one.dataset.url, kind: one.dataset.kind}));
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
  options.forEach((one, at) => one.setAttribute("aria-selected", at === chosen));
  options[chosen]?.scrollIntoView({block: "nearest"});
  if (options.length) input.setAttribute("aria-activedescendant", options[chosen].id);
  else input.removeAttribute("aria-activedescendant");
}

function show(topics) {
  const wanted = input.value.trim().toLowerCase();
  const filters = saved().map((one) => ({...one, kind: "Saved filter"}));
  const found = [...filters, ...fixed].filter((one) => one.name.toLowerCase().includes(wanted));
  list.replaceChildren(...[...found, ...topics].map(({name, url, kind}, at) => {
    const option = document.createElement("li"), words = document.createElement("small");
    Object.assign(option, {id: `palette-${at}`, role: "option", textContent: name});
    option.dataset.url = url;
    option.dataset.kind = words.textContent = kind;
    option.append(" ", words);
    return option;
  }));
  choose(0);
}

async function ask() {
  const mine = ++question, wanted = input.value.trim();
  show([]);
  if (!wanted) return;
  const answer = await fetch(`${palette.dataset.names}?q=${encodeURIComponent(wanted)}`, {headers: {Accept: "application/json"}}).catch(() => null);
  if (mine !== question || !answer?.ok) return;
  show((await answer.json()).topics.map((name) => ({name, url: `${palette.dataset.topics}/${encodeURIComponent(name)}`, kind: "Topic"})));
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
