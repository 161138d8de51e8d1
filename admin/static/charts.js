// Charts of a topic or a channel, drawn by uPlot. While the page is visible, they fetch new samples from nsqadmin every ten seconds.
// The table below the charts has the same values, for users who cannot see them.
import {Choices, Times} from "./times.js";

const AGAIN = 10000;  // ms
const HEIGHT = 180;  // px
const YOUNG = 90;  // samples that fit into 15 minutes
const SPANS = {quarter: [900, "hour"], hour: [3600, "hour"], day: [86400, "day"]};  // s, and the series that has them
// The lines of each chart: a name in the answer, a label, a color. What an answer lacks is left out.
const CHARTS = {
  rates: {unit: "messages/s", isRate: true, lines: [
    ["published", "Published/s", "#1f77b4"], ["finished", `Finished/s${document.querySelector("figure[data-channel]") ? "" : ", all channels"}`, "#2ca02c"],
    ["requeued", "Requeued/s", "#b8860b"], ["timed_out", "Timed out/s", "#e377c2"],
  ]},
  levels: {unit: "messages", isRate: false, lines: [
    ["depth", "Depth", "#1f77b4"], ["in_flight", "In flight", "#9467bd"], ["deferred", "Deferred", "#7f7f7f"], ["buried", "Buried", "#d62728"],
  ]},
};

const linesOf = (series, chart) => chart.lines.filter(([name]) => Array.isArray(series[name]));
const value = (series, name, step, isRate) => {
  const found = series[name][step] ?? null;
  return isRate && found !== null ? found / series.step : found;
};

// Return what is in the range, as uPlot wants it: times, then the values of each line. The ends of the range are always there.
function columns(series, chart, from, to) {
  const lines = linesOf(series, chart), times = [], kept = [];
  for (let step = 0; step < (series.depth?.length ?? 0); step++) {
    const at = series.from + (step + 1) * series.step;
    if (at > from && at < to) { times.push(at); kept.push(step); }
  }
  return [[from, ...times, to], ...lines.map(([name]) => [null, ...kept.map((step) => value(series, name, step, chart.isRate)), null])];
}

// Show the latest values while the cursor is elsewhere. The last column is the end of the range.
const showLatest = (chart) => { if (chart.cursor.idx == null) chart.setLegend({idx: Math.max(0, chart.data[0].length - 2)}, false); };
const clock = (seconds, withSeconds) => Times.text(new Date(seconds * 1000)).slice(11, withSeconds ? 19 : 16);

function draw(place, series, chart, from, to) {
  const lines = linesOf(series, chart), key = lines.map(([name]) => name).join();
  const data = columns(series, chart, from, to);
  place.range = [from, to];
  if (place.chart && place.dataset.lines === key) {
    place.chart.setData(data);
    showLatest(place.chart);
    return;
  }
  place.chart?.destroy();
  place.dataset.lines = key;
  const axis = {stroke: () => getComputedStyle(place).color, grid: {stroke: "#8884", width: 1}, ticks: {stroke: "#8884", width: 1}};
  place.chart = new uPlot({
    width: place.clientWidth, height: HEIGHT, hooks: {ready: [showLatest], setCursor: [showLatest]},
    tzDate: (seconds) => Times.isLocal ? new Date(seconds * 1000) : uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    scales: {x: {range: () => place.range}, y: {range: (u, low, high) => [0, Math.max(1, 1.05 * (high ?? 1))]}},
    axes: [
      {...axis, space: 70, values: (u, ticks) => ticks.map((tick) => clock(tick, false))},
      {...axis, size: 70, label: chart.unit, labelSize: 20, values: (u, ticks) => ticks.map((tick) => tick.toLocaleString("en-US"))},
    ],
    series: [
      {label: `Time (${Times.zone})`, value: (u, tick) => tick === null ? "-" : clock(tick, true)},
      ...lines.map(([, label, stroke]) => ({
        label, stroke, width: 2, spanGaps: false, value: (u, it) => it === null ? "-" : it.toLocaleString("en-US", {maximumFractionDigits: 1}),
      })),
    ],
  }, data, place);
}

// Labels and numbers only: nothing that somebody else wrote gets into the table.
function fillTable(table, series) {
  const shown = Object.values(CHARTS).flatMap((chart) => linesOf(series, chart).map(([name, label]) => [name, label, chart.isRate]));
  const row = (cells, tag) => `<tr>${cells.map((cell) => `<${tag}>${cell}</${tag}>`).join("")}</tr>`;
  const steps = [...series.depth.keys()].slice(-30).reverse();
  table.tHead.innerHTML = row([Times.zone, ...shown.map(([, label]) => label)], "th");
  table.tBodies[0].innerHTML = steps.map((step) => row([
    clock(series.from + (step + 1) * series.step, true),
    ...shown.map(([name, , isRate]) => { const found = value(series, name, step, isRate); return found === null ? "-" : isRate ? found.toFixed(1) : Number(found); }),
  ], "td")).join("");
}

async function show(figure, isNew) {
  if (document.hidden) return;
  const words = figure.querySelector("[role=status]");
  let answer = null;
  try {
    answer = await fetch(figure.dataset.series, {headers: {Accept: "application/json"}});
  } catch {
    return;  // live.js tells that nsqadmin is gone
  }
  const all = answer.ok ? await answer.json() : {};
  if (answer.ok && isNew && !Choices.get("span") && (all.hour?.depth.length ?? 0) <= YOUNG) figure.querySelector("input[value=quarter]").checked = true;
  const [seconds, name] = SPANS[figure.querySelector("input[type=radio]:checked").value];
  const series = all[name] ?? null;
  words.textContent = !answer.ok ? "The nodes do not answer. The next try follows in 10 seconds." : series ? "" : `Collecting data. The first samples appear in about ${name === "day" ? "5 minutes" : "20 seconds"}.`;
  if (!answer.ok) return;
  // by the server's clock, as the samples are; a sample of this second is before it
  const to = Math.floor(new Date(answer.headers.get("Date") ?? Date.now()) / 1000) + 1;
  for (const [kind, chart] of Object.entries(CHARTS)) {
    const place = figure.querySelector(`.chart.${kind}`);
    if (isNew) { place.chart?.destroy(); place.chart = null; }
    draw(place, series ?? {step: 10, from: 0}, chart, to - seconds, to);
  }
  if (series) fillTable(figure.querySelector("details table"), series);
}

for (const figure of document.querySelectorAll("figure[data-series]")) {
  const chosen = figure.querySelector(`input[value="${CSS.escape(Choices.get("span") ?? "")}"]`);
  if (chosen) chosen.checked = true;
  figure.querySelector("fieldset").hidden = false;
  show(figure, true);
  setInterval(() => show(figure, false), AGAIN);
  figure.addEventListener("change", (event) => {
    Choices.set("span", event.target.value);
    show(figure, true);
  });
  document.addEventListener("zone", () => show(figure, true));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => show(figure, false));
  for (const place of figure.querySelectorAll(".chart")) {
    new ResizeObserver(() => place.chart?.setSize({width: place.clientWidth, height: HEIGHT})).observe(place);
  }
}
