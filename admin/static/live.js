// Tells when the figures of a live page are old. The server sends a beat each second (admin/output/live_events.py), also while nodes keep
// it waiting; the browser's extension hx-sse reconnects by itself, and stops on purpose while the tab is in the background.
import {Times} from "./times.js";

const SILENT = 4000;  // ms without a beat: nsqadmin or the network is gone
const LATE = 15000;  // ms with beats, but without new figures: nodes keep nsqadmin waiting
const STUCK = 12000;  // ms of silence after which a connection that nobody closed is given up

const live = document.querySelector("#live[hx-sse\\:connect]");
if (live) {
  const banner = document.getElementById("stale"), asOf = document.querySelector("#as-of time");
  let heard = Date.now(), renewed = heard, visible = heard, given = heard;  // when something came, in ms
  let isBehind = false, hasEnded = false, connection = null;

  const words = (now) => {
    if (hasEnded) return "Your session has ended.";
    if (now - heard > SILENT) return now - visible > SILENT ? "Disconnected." : "Reconnecting.";
    if (isBehind) return "Reconnecting.";
    return now - renewed > LATE ? "The nodes have not answered yet." : "";
  };

  const tell = (text) => {
    if (banner.dataset.words === text + asOf.dateTime) return;
    banner.dataset.words = text + asOf.dateTime;
    banner.hidden = !text;
    document.body.classList.toggle("stale", text !== "");
    banner.replaceChildren();
    if (!text) return;
    banner.append(`${text} Data from `, asOf.cloneNode(true), ". ");
    if (!hasEnded) return;
    const link = document.createElement("a");
    link.href = `${banner.dataset.login}?next=${encodeURIComponent(location.pathname + location.search)}`;
    link.textContent = "Log in again";
    banner.append(link, ".");
  };

  const look = () => {
    if (document.hidden) return;
    const now = Date.now();
    if (now - heard > SILENT) isBehind = true;
    if (now - Math.max(heard, visible, given) > STUCK) {
      given = now;
      if (live._htmx?.sse) connection?.reader?.cancel().catch(() => {});  // hx-sse then connects again
      else htmx.ajax("GET", live.getAttribute("hx-sse:connect"), {source: live});  // the first connection failed
    }
    tell(words(now));
  };

  live.addEventListener("beat", (event) => {
    heard = Date.now();
    hasEnded = false;
    const {data} = event.detail;
    if (data && data !== asOf.dateTime) {
      asOf.dateTime = data;
      asOf.textContent = Times.words(new Date(data), "clock");
      renewed = heard;
      isBehind = false;
    }
    look();
  });
  live.addEventListener("htmx:sse:before:connection", (event) => { connection = event.detail.connection; });
  live.addEventListener("htmx:sse:error", (event) => {
    if (event.detail.status === 401) hasEnded = true;
    look();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    visible = Date.now();
    look();
  });
  setInterval(look, 500);

  const offers = () => live.querySelector("#offers")?.value;
  const count = document.querySelector("header a[data-key=m] span"), offered = offers();
  new MutationObserver(() => {
    const alarms = Number(live.querySelector("#alarm-count")?.value ?? 0), words = alarms ? ` (${alarms.toLocaleString("en-US")})` : "";
    if (count && count.textContent !== words) count.textContent = words;
    if (live.querySelector("[data-reload]")) location.reload();  // the page failed before and is available now: load all of it
    const isActing = [...document.querySelectorAll("details[open]")].some((one) => one.querySelector("form"));
    if (offers() !== offered && !isActing) location.assign(location.href);  // other actions are possible than those that the page has
    if (Times.isLocal) Times.show(live);
  }).observe(live, {childList: true, subtree: true, characterData: true});
}
