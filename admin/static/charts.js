// Charts of a topic: asked of nsqadmin every ten seconds while the page is seen, drawn by uPlot as wide as there is room.
// What they show stands in a table beneath, for those who do not see them.
"use strict";

const AGAIN = 10000;  // ms
const HEIGHT = 180;  // px
const LINES = [["published", "published/s", "#1f77b4"], ["finished", "left/s, all channels", "#2ca02c"]];
const LEVELS = [["depth", "depth", "#d62728"], ["in_flight", "in flight", "#9467bd"]];

// UTC, as everything else here; in steps of days the date, too.
function clock(seconds, step) {
  const text = new Date(seconds * 1000).toISOString();
  return step < 60 ? text.slice(11, 19) : text.slice(5, 16).replace("T", " ");
}

function drawn(place, told, lines, perSecond) {
  const times = told[lines[0][0]].map((_, step) => told.from + (step + 1) * told.step);
  const values = lines.map(([name]) => told[name].map((value) => value === null ? null : perSecond ? value / told.step : value));
  const colour = getComputedStyle(place).color;
  const axis = {stroke: colour, grid: {stroke: "#8884", width: 1}, ticks: {stroke: "#8884", width: 1}};
  const chart = place.chart;
  if (chart) { chart.setData([times, ...values]); return; }
  place.chart = new uPlot({
    width: place.clientWidth, height: HEIGHT, legend: {live: true}, tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    scales: {x: {range: (u, low, high) => [Math.min(low, high - 20 * told.step), high]}, y: {range: (u, low, high) => [0, Math.max(1, high)]}},
    axes: [{...axis, space: 90, values: (u, ticks) => ticks.map((tick) => clock(tick, told.step))}, {...axis, size: 70}],
    series: [{label: "UTC", value: (u, tick) => tick === null ? "-" : clock(tick, told.step)}, ...lines.map(([, label, stroke]) => ({label, stroke, width: 2, spanGaps: false}))],
  }, [times, ...values], place);
  new ResizeObserver(() => place.chart.setSize({width: place.clientWidth, height: HEIGHT})).observe(place);
}

function listed(table, told) {
  const body = table.tBodies[0];
  body.replaceChildren();
  const last = told.depth.length - 1;
  for (let step = last; step > Math.max(-1, last - 30); step--) {
    const row = body.insertRow();
    const cells = [new Date((told.from + (step + 1) * told.step) * 1000).toISOString().slice(11, 19)];
    for (const name of ["published", "finished"]) cells.push(told[name][step] === null ? "-" : (told[name][step] / told.step).toFixed(1));
    for (const name of ["depth", "in_flight"]) cells.push(told[name][step] ?? "-");
    for (const text of cells) row.insertCell().textContent = text;
  }
}

async function show(figure) {
  if (document.hidden) return;
  const span = figure.querySelector("input[type=radio]:checked").value;
  const answer = await fetch(figure.dataset.series, {headers: {Accept: "application/json"}});
  const told = answer.ok ? (await answer.json())[span] : null;
  const words = figure.querySelector("[role=status]");
  words.textContent = !answer.ok ? "The nodes do not answer." : told ? "" : "Nothing is noted yet: it begins with the first look, and takes twenty seconds.";
  if (!told) return;
  if (figure.dataset.shown !== span) {
    for (const place of figure.querySelectorAll(".chart")) { place.chart?.destroy(); place.chart = null; }
    figure.dataset.shown = span;
  }
  drawn(figure.querySelector(".chart.rates"), told, LINES, true);
  drawn(figure.querySelector(".chart.levels"), told, LEVELS, false);
  listed(figure.querySelector("details table"), told);
}

for (const figure of document.querySelectorAll("figure[data-series]")) {
  show(figure);
  setInterval(() => show(figure), AGAIN);
  figure.addEventListener("change", () => show(figure));
}
