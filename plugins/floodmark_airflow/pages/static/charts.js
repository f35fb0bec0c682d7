// Draws the charts of a rule from its history. Colours are those of the style sheet, light or dark.
"use strict";

(() => {
  const place = document.querySelector("[data-history]");
  if (place === null || typeof uPlot === "undefined") return;
  const HEIGHT = 190;
  const utc = (at) => uPlot.tzDate(new Date(at * 1e3), "Etc/UTC");
  const moment = (at, zone = "Z") =>
    at == null ? "-" : new Date(at * 1e3).toISOString().slice(0, 19).replace("T", " ") + zone;
  // Times along an axis of this scale: cut to one part where it spans less than two days, with seconds where its ticks lie
  // close, else to another part.
  const moments = ({ min, max }, tick, values, from, to, dayFrom, dayTo) => {
    const [first, last] = max - min < 172800 ? [from, tick < 60 ? to + 3 : to] : [dayFrom, dayTo];
    return values.map((at) => moment(at).slice(first, last));
  };
  const plain = (value) => (value == null ? "-" : value.toLocaleString("en"));
  const brief = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
  let drawn = [];
  let data = null;

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const KINDS = {
    rows: {
      lines: [
        ["read", "read", "--line-1", plain],
        ["written", "output", "--line-2", plain],
      ],
      axis: (values) => values.map((value) => brief.format(value)),
    },
    seconds: {
      lines: [
        ["mean", "mean", "--line-1", plain],
        ["slowest", "slowest", "--line-3", plain],
      ],
      axis: (values) => values.map((value) => brief.format(value)),
    },
    watermark: {
      lines: [["watermark", "watermark", "--line-1", (at) => moment(at, place.dataset.zone)]],
      axis: (values, chart, tick) => moments(chart.scales.y, tick, values, 5, 16, 0, 10),
      wide: true,
    },
  };

  const options = (kind, width) => {
    const grid = { stroke: colour("--rule"), width: 1 };
    const axis = { stroke: colour("--dim"), grid, ticks: grid, font: "11px system-ui, sans-serif" };
    return {
      width,
      height: HEIGHT,
      tzDate: utc,
      cursor: { sync: { key: "floodmark" }, drag: { x: true, y: false } },
      scales: { y: kind.wide ? { time: true } : { range: (_, low, high) => [0, high > 0 ? high * 1.08 : 1] } },
      axes: [
        { ...axis, space: 64, values: (chart, values, _, __, tick) => moments(chart.scales.x, tick, values, 11, 16, 5, 10) },
        { ...axis, size: kind.wide ? 84 : 52, values: (chart, values, _, __, tick) => kind.axis(values, chart, tick) },
      ],
      series: [
        { label: "until", value: (_, at) => moment(at) },
        ...kind.lines.map(([label, , stroke, value]) => ({
          label,
          stroke: colour(stroke),
          width: 1.5,
          points: { show: data.at.length < 40, size: 4 },
          dash: stroke === "--line-1" ? undefined : [5, 3],
          value: (_, found) => value(found),
        })),
      ],
    };
  };

  const draw = () => {
    for (const chart of drawn) chart.destroy();
    drawn = [...place.querySelectorAll("[data-chart]")].map((box) => {
      const kind = KINDS[box.dataset.chart];
      const columns = [data.at, ...kind.lines.map(([, column]) => data[column])];
      return new uPlot(options(kind, box.clientWidth), columns, box);
    });
  };

  const fit = () => {
    for (const chart of drawn) chart.setSize({ width: chart.root.parentElement.clientWidth, height: HEIGHT });
  };

  const fail = (text) => {
    const told = document.createElement("p");
    told.className = "fault";
    told.textContent = text;
    place.replaceChildren(told);
  };

  fetch(place.dataset.history, { credentials: "same-origin" })
    .then((answer) => (answer.ok ? answer.json() : Promise.reject(new Error(`the charts' data: ${answer.status}`))))
    .then((found) => {
      data = found.series;
      if (!data.at?.length) return;
      draw();
      document.addEventListener("floodmark-theme", draw);
      new ResizeObserver(fit).observe(place);
    })
    .catch((fault) => fail(`The charts cannot be drawn (${fault.message}); the table below has the numbers.`));
})();
