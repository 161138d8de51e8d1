// Keyboard shortcuts: / searches, g and a letter open a page, j and k move between rows, ? lists them. The mouse can do all of this, too.

const LONGEST = 1500;  // ms between g and its letter

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
  const dialog = document.getElementById("keys");
  if (["Shift", "CapsLock"].includes(event.key)) return;
  if (event.timeStamp < going) {
    going = 0;
    const place = dialog.querySelector(`[data-go="${CSS.escape(event.key)}"]`);
    if (place) location.href = place.dataset.path;
    return;
  }
  if (event.key === "g") going = event.timeStamp + LONGEST;
  else if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else if (event.key === "?") dialog.showModal();
  else if (event.key === "/") {
    const field = document.querySelector("input[type=search]");
    if (!field) return;
    field.focus();
    field.select();
  } else return;
  event.preventDefault();
});
