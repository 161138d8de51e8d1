// Times in the time zone that the reader chose: UTC, or the browser's. The choice is kept in this browser.

// What the reader chose, in this browser. A browser that stores nothing forgets it with the page.
export const Choices = {
  get(key) { try { return localStorage.getItem(key); } catch { return null; } },
  set(key, value) { try { localStorage.setItem(key, value); } catch { /* it is not kept */ } },
};

export const Times = {
  isLocal: Choices.get("zone") === "local",
  get zone() {
    return this.isLocal ? new Date().toLocaleTimeString("en-US", {timeZoneName: "short"}).split(" ").pop() : "UTC";
  },
  // Return the time as "2026-11-26 03:12:45.123", in the chosen zone.
  text(date) {
    return new Date(date - (this.isLocal ? date.getTimezoneOffset() * 60000 : 0)).toISOString().slice(0, 23).replace("T", " ");
  },
  words(date, form) {
    const from = form === "clock" ? 11 : 0;
    return `${this.text(date).slice(from, form === "ms" ? 23 : 19)} ${this.zone}`;
  },
  show(root) {
    for (const one of root.querySelectorAll("time[datetime]")) {
      const date = new Date(one.dateTime);
      if (isNaN(date)) continue;
      const words = this.words(date, one.dataset.form), shown = one.title ? "title" : "textContent";
      if (one[shown] !== words) one[shown] = words;  // observers of changes come to an end
    }
  },
};

const zone = document.getElementById("zone");
zone.hidden = false;
const zones = zone.querySelector("select");
zones.value = Times.isLocal ? "local" : "utc";
zones.addEventListener("change", () => {
  Times.isLocal = zones.value === "local";
  Choices.set("zone", zones.value);
  Times.show(document);
  document.dispatchEvent(new Event("zone"));
});
if (Times.isLocal) Times.show(document);
