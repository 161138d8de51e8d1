// Charts of a topic or a channel, drawn by uPlot. While the page is visible, they fetch new samples from nsqadmin every ten seconds.
// The table below the charts has the same values, for users who cannot see them.
"use strict";

const AGAIN = 10000;  // ms
const HEIGHT = 180;  // px
const LINES = [["published", "Published/s", "#1f77b4"], ["finished", "Finished/s", "#2ca02c"], ["requeued", "Requeued/s", "#e08214"], ["timed_out", "Timed out/s", "#d62728"]];
const LEVELS = [["depth", "Depth", "#d62728"], ["in_flight", "In flight", "#9467bd"], ["deferred", "Deferred", "#7f7f7f"], ["buried", "Buried", "#8c564b"]];

// UTC, as everything else here; in steps of days the date, too.
function clock(seconds, step) {
  const text = new Date(seconds * 1000).toISOString();
  return step < 60 ? text.slice(11, 19) : text.slice(5, 16).replace("T", " ");
}

function draw(place, series, lines, perSecond) {
  const times = series[lines[0][0]].map((_, step) => series.from + (step + 1) * series.step);
  const values = lines.map(([name]) => series[name].map((value) => value === null ? null : perSecond ? value / series.step : value));
  const colour = getComputedStyle(place).color;
  const axis = {stroke: colour, grid: {stroke: "#8884", width: 1}, ticks: {stroke: "#8884", width: 1}};
  const chart = place.chart;
  if (chart) { chart.setData([times, ...values]); return; }
  place.chart = new uPlot({
    width: place.clientWidth, height: HEIGHT, legend: {live: true}, tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    scales: {x: {range: (u, low, high) => [Math.min(low, high - 20 * series.step), high]}, y: {range: (u, low, high) => [0, Math.max(1, high)]}},
    axes: [{...axis, space: 90, values: (u, ticks) => ticks.map((tick) => clock(tick, series.step))}, {...axis, size: 70}],
    series: [{label: "UTC", value: (u, tick) => tick === null ? "-" : clock(tick, series.step)}, ...lines.map(([, label, stroke]) => ({label, stroke, width: 2, spanGaps: false}))],
  }, [times, ...values], place);
  new ResizeObserver(() => place.chart.setSize({width: place.clientWidth, height: HEIGHT})).observe(place);
}

// The lines that a chart has: its data-lines names them, and its data-finished says what the finished ones are called.
const shownIn = (figure, lines) => lines.filter(([name]) => figure.dataset.lines.split(" ").includes(name)).map(([name, label, stroke]) => [name, name === "finished" ? figure.dataset.finished : label, stroke]);

function fillTable(table, series, rates, levels) {
  const body = table.tBodies[0];
  body.replaceChildren();
  const last = series.depth.length - 1;
  for (let step = last; step > Math.max(-1, last - 30); step--) {
    const row = body.insertRow();
    const cells = [new Date((series.from + (step + 1) * series.step) * 1000).toISOString().slice(11, 19)];
    for (const [name] of rates) cells.push(series[name][step] === null ? "-" : (series[name][step] / series.step).toFixed(1));
    for (const [name] of levels) cells.push(series[name][step] ?? "-");
    for (const text of cells) row.insertCell().textContent = text;
  }
}

async function show(figure) {
  if (document.hidden) return;
  const span = figure.querySelector("input[type=radio]:checked").value;
  const answer = await fetch(figure.dataset.series, {headers: {Accept: "application/json"}});
  const series = answer.ok ? (await answer.json())[span] : null;
  const words = figure.querySelector("[role=status]");
  words.textContent = !answer.ok ? "The nodes do not answer. The next try follows in 10 seconds." : series ? "" : "Collecting data. The first samples appear in about 20 seconds.";
  if (!series) return;
  if (figure.dataset.shown !== span) {
    for (const place of figure.querySelectorAll(".chart")) { place.chart?.destroy(); place.chart = null; }
    figure.dataset.shown = span;
  }
  const rates = shownIn(figure, LINES), levels = shownIn(figure, LEVELS);
  draw(figure.querySelector(".chart.rates"), series, rates, true);
  draw(figure.querySelector(".chart.levels"), series, levels, false);
  fillTable(figure.querySelector("details table"), series, rates, levels);
}

for (const figure of document.querySelectorAll("figure[data-series]")) {
  show(figure);
  setInterval(() => show(figure), AGAIN);
  figure.addEventListener("change", () => show(figure));
}
