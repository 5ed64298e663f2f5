"use strict";
// Draws the charts from the data in the page, makes them usable by keyboard, and fills the tables. Text from records is only
// inserted as textContent; text for plotly is escaped first, because plotly interprets some HTML.
(() => {
  const P = window.Plotly || window.moduleName;
  const data = JSON.parse(document.getElementById("data").textContent);
  const who = data.contenders;
  const shown = new Set(who.map((c, i) => (c.selected ? i : -1)).filter((i) => i >= 0));
  const $ = (selector, root) => (root || document).querySelector(selector);
  const $$ = (selector, root) => Array.from((root || document).querySelectorAll(selector));
  const el = (tag, props, ...children) => {
    const e = Object.assign(document.createElement(tag), props || {});
    e.append(...children);
    return e;
  };
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  let printing = false;
  const PAPER = { width: 670, height: 330 };
  // Height of a limit's name in a chart, pixels.
  const ROW = 15;

  // ---- units ----
  const three = (v) => {
    if (v === 0) return "0";
    const digits = Math.min(6, Math.max(0, 2 - Math.floor(Math.log10(Math.abs(v)))));
    return v.toFixed(digits);
  };
  const prefixes = [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];
  const show = (v, unit) => {
    if (v === null || v === undefined) return "–";
    if (unit === "") return three(v);
    if (unit === "%") return three(v) + " %";
    const down = unit === "s" ? prefixes.slice(3) : prefixes.slice(0, 4);
    const [by, prefix] = down.find(([b]) => Math.abs(v) >= b * 0.9995) || down[down.length - 1];
    return three(v / by) + " " + prefix + (prefix && unit === "msg/s" ? " " : "") + unit;
  };
  const tick = (v, unit) => {
    const [number, ...rest] = show(v * (1 + 1e-9), unit === "msg/s" ? "B/s" : unit).split(" ");
    const text = [String(Number(number)), ...rest].join(" ");
    return unit === "msg/s" ? text.replace(/ ?B\/s$/, "") : text;
  };
  const size = (b) => {
    for (const [by, unit] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [1024, "KiB"]]) {
      if (b >= by && b % by === 0) return b / by + " " + unit;
    }
    return b + " B";
  };
  const nines = (x) => {
    const p = 100 * (1 - 10 ** -x);
    return (p < 99 ? Number(three(p)) : p.toFixed(Math.max(0, Math.ceil(x - 2 - 1e-6)))) + " %";
  };
  const showX = (axis, v) => (axis.scale === "size" ? size(v) : axis.scale === "nines" ? nines(v) : show(v, axis.unit));

  // ---- marks ----
  const dark = () => {
    if (printing) return false;
    const theme = document.documentElement.dataset.theme;
    return theme === "dark" || (theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  };
  const colour = (i) => who[i].colours[dark() ? 1 : 0];
  const shapes = {
    circle: "M0-4A4 4 0 1 1 0 4A4 4 0 1 1 0-4Z", square: "M-3.5-3.5H3.5V3.5H-3.5Z", diamond: "M0-5L5 0L0 5L-5 0Z",
    "triangle-up": "M0-4.5L4.5 3.5H-4.5Z", "triangle-down": "M0 4.5L4.5-3.5H-4.5Z",
    x: "M-4-2.2L-2.2-4L0-1.8L2.2-4L4-2.2L1.8 0L4 2.2L2.2 4L0 1.8L-2.2 4L-4 2.2L-1.8 0Z",
    cross: "M-1.3-4.5H1.3V-1.3H4.5V1.3H1.3V4.5H-1.3V1.3H-4.5V-1.3H-1.3Z",
    star: "M0-5L1.4-1.6L5-1.5L2.2 .8L3.1 4.3L0 2.3L-3.1 4.3L-2.2 .8L-5-1.5L-1.4-1.6Z",
  };
  const dashes = { solid: "", dash: "5 3", dot: "1.5 2.5", dashdot: "5 2.5 1.5 2.5", longdash: "9 3" };
  const swatch = (i) => {
    const ns = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(ns, "svg");
    for (const [k, v] of Object.entries({ width: 30, height: 12, viewBox: "0 0 30 12", "aria-hidden": "true" })) svg.setAttribute(k, v);
    const line = document.createElementNS(ns, "path");
    line.setAttribute("d", "M0 6H30");
    line.setAttribute("stroke", colour(i));
    line.setAttribute("stroke-width", "2");
    line.setAttribute("stroke-dasharray", dashes[who[i].dash]);
    const mark = document.createElementNS(ns, "path");
    mark.setAttribute("d", shapes[who[i].marker]);
    mark.setAttribute("fill", colour(i));
    mark.setAttribute("transform", "translate(15 6)");
    svg.append(line, mark);
    return svg;
  };

  // ---- one chart ----
  const config = {
    displayModeBar: false, displaylogo: false, responsive: true, showSendToCloud: false, showEditInChartStudio: false,
    plotlyServerURL: "", showTips: false, showLink: false, scrollZoom: false, doubleClick: "reset",
  };
  const coarse = matchMedia("(pointer: coarse)").matches;
  // A figure whose ends are equal has no interval.
  const hasInterval = (s, k) => Boolean(s.lo && s.lo.length > k && s.lo[k] !== s.hi[k]);
  const interval = (s, k, unit) => {
    const parts = hasInterval(s, k) ? [show(s.lo[k], unit) + " to " + show(s.hi[k], unit)] : [];
    if (s.n && s.n[k]) parts.push("n = " + s.n[k]);
    return parts.length ? " [" + parts.join(", ") + "]" : "";
  };
  const isDegraded = (s, k) => Boolean(s.degraded && s.degraded.includes(k));
  const errors = (v, lo, hi, tone) => (lo && lo.length ? {
    type: "data", symmetric: false, array: v.map((y, k) => hi[k] - y), arrayminus: v.map((y, k) => y - lo[k]),
    thickness: 1.2, width: 2.5, color: tone,
  } : undefined);
  const nameOf = (s) => (s.c === undefined ? s.name : who[s.c].label);

  // Puts names beside the markers of a scatter chart that has been drawn: at the first place that no other name, marker or error bar
  // crosses, or else at the nearest free place, with a line to the marker. Returns the names with lines, as annotations.
  function placeNames(traces, { xaxis, yaxis }) {
    const led = [], names = [];
    const at = traces.map(({ series: s }) => {
      const across = (v) => xaxis.d2p(v), down = (v) => yaxis.d2p(v);
      const [x, y] = [across(s.x[0]), down(s.y[0])];
      const bar = (low, high, to, mid) => (low && low.length && low[0] > 0 ? [to(low[0]), to(high[0])].sort((a, b) => a - b) : [mid, mid]);
      return { x, y, wide: bar(s.xlo, s.xhi, across, x), high: bar(s.lo, s.hi, down, y) };
    });
    const taken = at.flatMap(({ x, y, wide, high }) => [[x - 5.5, y - 5.5, x + 5.5, y + 5.5], [wide[0] - 1, y - 3, wide[1] + 1, y + 3], [x - 3, high[0] - 1, x + 3, high[1] + 1]]);
    const free = (b) => b[0] > 0 && b[2] < xaxis._length && b[1] > 0 && b[3] < yaxis._length && taken.every((o) => o[2] < b[0] || o[0] > b[2] || o[3] < b[1] || o[1] > b[3]);
    traces.forEach((t, k) => {
      const { x, y } = at[k], w = nameOf(t.series).length * 6.4;
      const rows = { top: [y - 24, y - 5.6], bottom: [y + 5.6, y + 24], middle: [y - 8, y + 8] };
      const columns = { center: [x - w / 2, x + w / 2], right: [x + 7, x + 9 + w], left: [x - 9 - w, x - 7] };
      const box = (place) => { const [r, c] = place.split(" "); return [columns[c][0], rows[r][0], columns[c][1], rows[r][1]]; };
      const place = ["top center", "bottom center", "middle right", "middle left", "top right", "top left", "bottom right", "bottom left"].find((p) => free(box(p)));
      if (place) { taken.push(box(place)); names.push(box(place)); }
      t.textposition = place || "top center";
      t.text = place ? t.series.x.map(() => plain(nameOf(t.series))) : undefined;
      t.mode = place ? "markers+text" : "markers";
      // Of more names, the lines would be a thicket.
      if (place || traces.length > 16) return;
      for (let far = 26; far < 220; far += 14) for (let turn = 0; turn < 24; turn++) {
        const ax = Math.cos((turn * Math.PI) / 12) * (far + w / 2), ay = Math.sin((turn * Math.PI) / 12) * far;
        const b = [x + ax - w / 2 - 3, y + ay - 10, x + ax + w / 2 + 3, y + ay + 10];
        const line = [3, 4, 5, 6, 7, 8].map((part) => [x + (ax * part) / 10, y + (ay * part) / 10]);
        const crosses = line.some(([px, py]) => names.some((n) => px > n[0] && px < n[2] && py > n[1] && py < n[3]));
        if (!free(b) || crosses) continue;
        taken.push(b, ...line.map(([px, py]) => [px - 2, py - 2, px + 2, py + 2]));
        names.push(b);
        led.push({ x: Math.log10(t.series.x[0]), y: Math.log10(t.series.y[0]), ax, ay, text: plain(nameOf(t.series)), showarrow: true, arrowhead: 0, arrowwidth: 0.8, arrowcolor: t.line.color, standoff: 6, font: { size: 11, color: css("--ink") } });
        return;
      }
    });
    return led;
  }
  function lines(chart, view, unit) {
    return (view.series || []).filter((s) => shown.has(s.c)).map((s) => {
      const hollow = (k) => isDegraded(s, k) || (chart.kind === "scatter" && who[s.c].discipline !== "blocking");
      return {
        type: "scatter", mode: chart.kind === "scatter" ? "markers" : "lines+markers", name: plain(nameOf(s)), x: s.x, y: s.y,
        line: { color: colour(s.c), dash: who[s.c].dash, width: 2 },
        marker: {
          color: colour(s.c), size: s.x.length > 30 ? 4 : chart.kind === "scatter" ? 11 : 8, line: { width: chart.kind === "scatter" ? 2 : 0, color: colour(s.c) },
          symbol: s.x.map((_, k) => who[s.c].marker + (hollow(k) ? "-open" : "")),
        },
        error_y: errors(s.y, s.lo, s.hi, colour(s.c)),
        error_x: errors(s.x, s.xlo, s.xhi, colour(s.c)),
        cliponaxis: false, textfont: { size: 11, color: css("--ink") },
        customdata: s.x.map((x, k) => plain(showX(chart.x, x) + ": " + show(s.y[k], unit) + interval(s, k, unit) + (isDegraded(s, k) ? " (degraded)" : ""))),
        hovertemplate: "<b>%{fullData.name}</b><br>%{customdata}<extra></extra>", series: s,
      };
    });
  }
  function dots(chart, view, unit) {
    const symbols = ["circle", "diamond", "square", "triangle-up"];
    const rows = [];
    const pick = (s) => s.who.map((w, k) => [w, k]).filter(([w]) => shown.has(w));
    for (const s of view.series) for (const [w, k] of pick(s)) {
      let row = rows.find((r) => r.w === w);
      if (!row) rows.push((row = { w, sum: 0, ys: [] }));
      row.sum += s.y[k];
      row.ys.push(s.y[k]);
    }
    rows.sort((a, b) => (chart.kind === "bars" ? b.sum - a.sum : b.ys[0] - a.ys[0]));
    const bars = chart.kind === "bars";
    const traces = view.series.map((s, at) => {
      const points = pick(s);
      const values = points.map(([, k]) => s.y[k]);
      return {
        type: bars ? "bar" : "scatter", mode: bars ? undefined : "markers", orientation: bars ? "h" : undefined, name: plain(s.name), x: values,
        y: points.map(([w]) => plain(who[w].label)),
        marker: bars ? { color: css("--tone-" + (at % 4)), pattern: { shape: ["", "/", "x", "."][at % 4], fillmode: "overlay", fgcolor: css("--card"), solidity: 0.3, size: 7 } }
          : { color: css("--tone-" + (at % 4)), size: 10, symbol: points.map(([, k]) => symbols[at % 4] + (isDegraded(s, k) ? "-open" : "")) },
        error_x: bars ? undefined : errors(values, points.map(([, k]) => s.lo[k]), points.map(([, k]) => s.hi[k]), css("--tone-" + (at % 4))),
        customdata: points.map(([, k]) => plain(show(s.y[k], unit) + interval(s, k, unit) + (isDegraded(s, k) ? " (degraded)" : ""))),
        hovertemplate: "<b>%{y}</b>, %{fullData.name}<br>%{customdata}<extra></extra>", series: s,
      };
    });
    if (!bars) {
      const x = [], y = [];
      for (const r of rows) { x.push(Math.min(...r.ys), Math.max(...r.ys), null); const label = plain(who[r.w].label); y.push(label, label, null); }
      traces.unshift({ type: "scatter", mode: "lines", x, y, line: { color: css("--faint"), width: 1.5 }, hoverinfo: "skip", showlegend: false });
    }
    return { traces, order: rows.map((r) => plain(who[r.w].label)) };
  }
  function heat(chart, view, unit) {
    const m = view.matrix;
    const flat = m.z.flat().filter((v) => v !== null && v > 0);
    const low = Math.min(...flat), high = Math.max(...flat);
    const wide = high / low > 20;
    const scale = (v) => (v === null ? null : wide ? Math.log10(v) : v);
    const ticks = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) for (const d of wide ? [1, 3] : [1, 1.5, 2, 3, 4, 5, 6, 8]) {
      const v = d * 10 ** e;
      if (v >= low * 0.999 && v <= high * 1.001) ticks.push(v);
    }
    const cells = m.rows.length * m.columns.length;
    const narrow = innerWidth < 640 && m.columns.length > 6;
    return [{
      type: "heatmap", x: m.columns.map(plain), y: m.rows.map(plain), z: m.z.map((r) => r.map(scale)), colorscale: "Cividis", reversescale: unit === "s",
      xgap: cells < 400 ? 2 : 0, ygap: cells < 400 ? 2 : 0,
      text: m.z.map((r) => r.map((v) => (v === null ? "" : show(v, unit)))), texttemplate: cells <= 144 && !narrow ? "%{text}" : undefined,
      customdata: m.z.map((r, i) => r.map((v, k) => plain(v === null ? "not measured" : show(v, unit) + interval({ lo: m.lo[i], hi: m.hi[i], n: m.n[i] }, k, unit)))),
      hovertemplate: "%{y} → %{x}<br>%{customdata}<extra></extra>", hoverongaps: false,
      colorbar: { tickvals: ticks.map(scale), ticktext: ticks.map((v) => show(v, unit)), thickness: 12, outlinewidth: 0, tickfont: { size: 11 } },
    }];
  }
  function axisLayout(axis, values) {
    const out = {
      title: { text: plain(axis.title), standoff: 10, font: { size: 13 } }, gridcolor: css("--grid"), linecolor: css("--line"), zeroline: false, automargin: true,
      tickfont: { size: 12 }, fixedrange: coarse,
    };
    if (axis.scale === "size") {
      out.type = "log";
      // The measured sizes, as far as their names have room.
      const sizes = [...new Set(values)].filter((v) => v > 0).sort((a, b) => a - b);
      const span = Math.log2(sizes[sizes.length - 1] / sizes[0]) || 1;
      const room = innerWidth < 640 && !printing ? 0.3 : 0.08;
      out.tickvals = sizes.filter(((last) => (v) => {
        const at = Math.log2(v / sizes[0]) / span;
        if (at < last + room) return false;
        last = at;
        return true;
      })(-Infinity));
      out.ticktext = out.tickvals.map(size);
      const pad = Math.max(0.12, Math.log10(Math.max(...values) / Math.min(...values)) * 0.04);
      out.range = [Math.log10(Math.min(...values)) - pad, Math.log10(Math.max(...values)) + pad];
    } else if (axis.scale === "nines") {
      // On a phone, the names of 0 % and 50 % would overlap.
      const steps = innerWidth < 640 && !printing ? [0, 1, 2, 3, 4, 5, 6, 7] : [0, 0.30103, 1, 2, 3, 4, 5, 6, 7];
      out.tickvals = steps.filter((v) => v <= Math.max(1, ...values) + 0.3);
      out.ticktext = out.tickvals.map((v) => (v === 0 ? "0 %" : nines(v)));
    } else if (axis.scale === "log" || axis.scale === "linear") {
      out.type = axis.scale;
      if (axis.scale === "log") {
        // Make the ticks here: plotly drops the unit of every tick except those at powers of ten.
        const positive = values.filter((v) => v > 0);
        const low = Math.log10(Math.min(...positive)), high = Math.log10(Math.max(...positive));
        const digits = high - low > 2.6 ? [1] : high - low > 0.7 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9];
        out.tickvals = [];
        for (let e = Math.floor(low) - 1; e <= Math.ceil(high) + 1; e++) for (const d of digits) out.tickvals.push(d * 10 ** e);
        out.ticktext = out.tickvals.map((v) => tick(v, axis.unit));
        if (digits.length === 1) out.minor = { dtick: "D1", showgrid: false, ticks: "outside", ticklen: 3, tickcolor: css("--line") };
      } else {
        out.tickformat = axis.unit === "%" || axis.unit === "" ? "~g" : "~s";
        out.ticksuffix = axis.unit === "%" ? " %" : axis.unit === "msg/s" || axis.unit === "" ? "" : axis.unit;
      }
      if (axis.scale === "linear" && axis.unit !== "") out.rangemode = "tozero";
    }
    return out;
  }
  // The range of the value axis: the data with a margin, and the limits near them.
  function rangeOf(values, levels, log) {
    const usable = values.filter((v) => Number.isFinite(v) && (v > 0 || !log));
    if (!usable.length) return undefined;
    const at = (v) => (log ? Math.log10(v) : v);
    let low = Math.min(...usable.map(at)), high = Math.max(...usable.map(at));
    const near = log ? Math.max(0.35, (high - low) * 0.25) : (high - low) * 0.25;
    for (const v of levels.filter((l) => l.x.length === 0 && (l.y[0] > 0 || !log)).map((l) => at(l.y[0]))) {
      if (v > high && v <= high + near) high = v;
      if (v < low && v >= low - near) low = v;
    }
    if (!log) low = Math.min(0, low);
    const room = Math.max((high - low) * 0.07, log ? 0.08 : Math.abs(high) * 0.05 || 1);
    return [log || low < 0 ? low - room : low, high + room];
  }
  // Sets a chart's height; for printing also its width, because the page has not been laid out for paper yet.
  function resize(node, layout, height) {
    node.style.height = height ? height + "px" : printing ? PAPER.height + "px" : "";
    node.style.width = printing ? PAPER.width + "px" : "";
    if (printing) Object.assign(layout, { width: PAPER.width, height: height || PAPER.height, autosize: false });
  }
  // `room`: height of the plot in pixels, if it is known.
  async function draw(chart, viewAt, node, room) {
    const view = chart.views[viewAt];
    const valueAxis = view.value_axis || (chart.kind === "dots" || chart.kind === "bars" ? chart.x : chart.y);
    const unit = valueAxis.unit;
    const layout = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: css("--sans"), color: css("--ink"), size: 13 },
      margin: { l: 12, r: 18, t: 18, b: 12 }, hovermode: "closest", dragmode: coarse ? false : "zoom", showlegend: false,
      hoverlabel: { bgcolor: css("--card"), bordercolor: css("--line"), font: { color: css("--ink"), family: css("--sans") }, align: "left" },
      shapes: [], annotations: [], uirevision: node.id + viewAt,
    };
    let traces;
    let empty = false;
    let high;
    if (chart.kind === "heat") {
      traces = heat(chart, view, unit);
      layout.xaxis = { title: { text: plain(chart.x.title), standoff: 8 }, automargin: true, type: "category", fixedrange: coarse, showgrid: false, tickangle: view.matrix.columns.every((c) => c.length < 4) ? 0 : undefined };
      layout.yaxis = { title: { text: plain(chart.y.title), standoff: 8 }, automargin: true, type: "category", autorange: "reversed", fixedrange: coarse, showgrid: false };
      resize(node, layout, Math.max(300, Math.min(900, 130 + (printing ? 24 : 40) * view.matrix.rows.length)));
    } else if (chart.kind === "dots" || chart.kind === "bars") {
      const d = dots(chart, view, unit);
      traces = d.traces;
      empty = d.order.length === 0;
      layout.xaxis = axisLayout(valueAxis, traces.flatMap((t) => t.x.filter((v) => v !== null)));
      layout.yaxis = { type: "category", categoryorder: "array", categoryarray: d.order, automargin: true, gridcolor: css("--grid"), fixedrange: true, tickfont: { size: 12 } };
      layout.barmode = "stack";
      layout.showlegend = true;
      layout.legend = { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, traceorder: "normal", itemclick: false, itemdoubleclick: false };
      layout.margin.t = 44;
      resize(node, layout, Math.max(240, 130 + (printing ? 18 : 26) * d.order.length));
    } else {
      resize(node, layout);
      high = room || Math.max(120, node.clientHeight - 68);
      traces = lines(chart, view, unit);
      empty = traces.length === 0;
      const levels = view.levels || [];
      const ink = css("--soft");
      const xs = traces.flatMap((t) => t.x);
      // The axis follows the data and their whole intervals; a limit is drawn if it is near, and named at the edge if it is not.
      const ys = traces.flatMap((t) => t.y.concat(t.series.lo || [], t.series.hi || [])).filter((v) => Number.isFinite(v));
      layout.xaxis = axisLayout(chart.x, xs.length ? xs : [1, 10]);
      layout.yaxis = axisLayout(valueAxis, ys.length ? ys : [1, 10]);
      const log = valueAxis.scale === "log";
      const range = rangeOf(ys, levels, log);
      if (range) layout.yaxis.range = range;
      const toAxis = (v) => (log ? Math.log10(v) : v);
      const inRange = (v) => !range || (toAxis(v) >= range[0] && toAxis(v) <= range[1]);
      const pixel = (v) => (range ? ((toAxis(v) - range[0]) / (range[1] - range[0])) * high : 0);
      const heights = traces.flatMap((t) => t.y).filter((v) => v > 0 || !log).map(pixel);
      const crowd = (from, to) => heights.filter((h) => h > from && h <= to).length;
      const small = { showarrow: false, bgcolor: css("--card"), opacity: 0.85, font: { size: 11, color: ink } };
      // The names of limits beyond the axis are at its ends. The other names are above their lines, or below them if fewer points lie
      // there; if another name is in the way, at the nearest free place. All names are at the right.
      const named = [];
      const isBeyond = (level) => level.x.length === 0 && !inRange(level.y[0]);
      const edges = { "↑ ": 0, "↓ ": 0 };
      for (const level of levels.filter(isBeyond)) {
        const edge = toAxis(level.y[0]) > range[1] ? "↑ " : "↓ ";
        const row = edges[edge]++ * ROW;
        const up = edge === "↑ ";
        named.push(up ? high - row - ROW : row);
        layout.annotations.push({ ...small, xref: "paper", yref: "paper", x: 1, xanchor: "right", y: up ? 1 : 0, yanchor: up ? "top" : "bottom", yshift: up ? -row : row, text: edge + plain(level.name + ", " + show(level.y[0], unit)), borderpad: 1 });
      }
      // The bottom of a name, as a distance in pixels from the value.
      const place = (v) => {
        const line = pixel(v);
        const isFree = (at) => at >= 0 && at + ROW <= high && (at >= line || at + ROW <= line) && named.every((other) => Math.abs(other - at) >= ROW);
        const down = crowd(line, line + 22) > crowd(line - 22, line);
        let at = down ? line - ROW : line;
        for (let step = 1; !isFree(at) && step < high; step++) at += (step % 2 === 1) === down ? -step : step;
        named.push(at);
        return at - line;
      };
      for (const level of levels.filter((l) => !isBeyond(l))) {
        const shifted = (v) => ({ ...small, xanchor: "right", y: toAxis(v), yanchor: "bottom", yshift: place(v) });
        if (level.x.length) {
          const inside = level.x.map((x, k) => [x, level.y[k]]).filter(([x]) => !xs.length || (x >= Math.min(...xs) && x <= Math.max(...xs)));
          traces.push({ type: "scatter", mode: "lines", x: inside.map((p) => p[0]), y: inside.map((p) => p[1]), line: { color: ink, dash: "dot", width: 1.5 }, hovertemplate: plain(level.name) + ": %{customdata}<extra></extra>", customdata: inside.map((p) => show(p[1], unit)) });
          const end = inside[inside.length - 1];
          if (end && inRange(end[1])) layout.annotations.push({ ...shifted(end[1]), x: chart.x.scale === "linear" ? end[0] : Math.log10(end[0]), text: plain(level.name) });
        } else {
          layout.shapes.push({ type: "line", xref: "paper", x0: 0, x1: 1, y0: level.y[0], y1: level.y[0], line: { color: ink, dash: "dot", width: 1.5 } });
          layout.annotations.push({ ...shifted(level.y[0]), xref: "paper", x: 1, text: plain(level.name + ", " + show(level.y[0], unit)), borderpad: 1 });
        }
      }
      marks(view, layout, chart, log, traces);
      if (chart.kind === "lines" && traces.length > 0 && traces.length <= 12) directLabels(traces, layout, log, high);
    }
    if (empty) layout.annotations.push({ xref: "paper", yref: "paper", x: 0.5, y: 0.5, showarrow: false, text: "Nothing selected: choose mechanisms to draw", font: { size: 14, color: css("--soft") } });
    node.traces = traces;
    node.home = { xaxis: layout.xaxis.range, yaxis: layout.yaxis.range };
    await P.react(node, traces, layout, config);
    if (chart.kind === "scatter" && traces.length) {
      const { xaxis, yaxis } = node._fullLayout;
      // Names make an axis that finds its own range longer, which would move the markers.
      layout.xaxis.range = [...xaxis.range];
      layout.yaxis.range = [...yaxis.range];
      layout.annotations.push(...placeNames(traces.filter((t) => t.series), node._fullLayout));
      node.home = { xaxis: layout.xaxis.range, yaxis: layout.yaxis.range };
      await P.react(node, traces, layout, config);
    }
    // Names were placed for an estimated height; turned names of ticks, for example, take more room.
    const plot = node._fullLayout._size.h;
    if (!room && chart.kind === "lines" && Math.abs(plot - high) > 4) await draw(chart, viewAt, node, plot);
  }
  // Steps: a line up from the bottom, with its name if the names do not crowd.
  function marks(view, layout, chart, log, traces) {
    const drawn = (view.marks || []).filter((m) => shown.has(m.c) && traces.some((t) => t.series && t.series.c === m.c));
    const at = (v) => (chart.x.scale === "linear" ? v : Math.log10(v));
    // In the right half a name is to the left of its line: to the right, it could reach the names of the lines.
    const [from, to] = layout.xaxis.range || [at(0), Infinity];
    drawn.forEach((m, k) => {
      const left = at(m.x) > (from + to) / 2;
      layout.shapes.push({ type: "line", layer: "below", yref: "paper", y0: 0, y1: 1, x0: m.x, x1: m.x, line: { color: colour(m.c), dash: "dot", width: 1 } });
      if (drawn.length > 10) return;
      layout.annotations.push({ x: at(m.x), yref: "paper", y: 0.02 + 0.055 * (k % 5), xanchor: left ? "right" : "left", xshift: left ? -3 : 3, yanchor: "bottom", showarrow: false, text: plain(m.label), bgcolor: css("--card"), opacity: 0.85, borderpad: 1, font: { size: 10.5, color: colour(m.c) } });
    });
  }
  // Names at the ends of the lines, moved apart where they would overlap, so that no reader has to match dashes to a legend.
  function directLabels(traces, layout, log, high) {
    const narrow = innerWidth < 640 && !printing;
    const short = (name) => (narrow && name.length > 16 ? name.slice(0, 15) + "…" : name);
    const ends = traces.filter((t) => t.series && t.x.length).map((t) => ({ t, x: t.x[t.x.length - 1], y: t.y[t.y.length - 1] })).filter((e) => e.y > 0 || !log);
    if (!ends.length) return;
    const at = (v) => (log ? Math.log10(v) : v);
    const [bottom, top] = layout.yaxis.range || [0, 1];
    const gap = ((top - bottom) * 15) / high;
    ends.sort((a, b) => at(a.y) - at(b.y));
    let last = -Infinity;
    for (const e of ends) { e.at = Math.max(at(e.y), last + gap); last = e.at; }
    for (let k = ends.length - 1, roof = top + gap / 2; k >= 0; k--) {
      ends[k].at = Math.min(ends[k].at, roof - gap);
      roof = ends[k].at;
    }
    for (const e of ends) {
      layout.annotations.push({ xref: "paper", x: 1, xanchor: "left", xshift: 4, y: e.at, yanchor: "middle", showarrow: false, text: plain(short(nameOf(e.t.series))), font: { size: narrow ? 10 : 11.5, color: e.t.line.color } });
    }
    const longest = Math.max(...ends.map((e) => short(nameOf(e.t.series)).length));
    layout.margin.r = Math.min(narrow ? 116 : 200, 16 + longest * (narrow ? 6 : 7));
  }

  // ---- a chart's figures as a table ----
  function table(heads, rows) {
    const head = el("tr");
    for (const h of heads) head.append(el("th", { scope: "col", textContent: h }));
    const body = el("tbody");
    for (const row of rows) {
      const tr = el("tr");
      row.forEach((cell, k) => tr.append(el(k ? "td" : "th", { textContent: cell })));
      body.append(tr);
    }
    return el("table", { className: "grid" }, el("thead", {}, head), body);
  }
  function chartTable(chart, view) {
    const axis = view.value_axis || (chart.kind === "dots" || chart.kind === "bars" ? chart.x : chart.y);
    if (view.matrix) {
      const m = view.matrix;
      return table(["", ...m.columns], m.rows.map((r, i) => [r, ...m.z[i].map((v) => show(v, axis.unit))]));
    }
    const rows = [];
    for (const s of view.series) s.y.forEach((y, k) => {
      const first = s.c !== undefined ? [who[s.c].label, showX(chart.x, s.x[k])] : [who[s.who[k]].label, s.name];
      const range = hasInterval(s, k) ? show(s.lo[k], axis.unit) + " to " + show(s.hi[k], axis.unit) : "–";
      rows.push([...first, show(y, axis.unit), range, s.n && s.n[k] ? String(s.n[k]) : "–", isDegraded(s, k) ? "degraded" : ""]);
    });
    const heads = ["Mechanism", view.series[0] && view.series[0].c !== undefined ? chart.x.title : "Kind", axis.title, "Interval", "Trials", ""];
    // With too few trials for an interval, its column would be empty.
    const used = (at) => at !== 3 || rows.some((row) => row[at] !== "–");
    return table(heads.filter((_, at) => used(at)), rows.map((row) => row.filter((_, at) => used(at))));
  }

  // ---- charts on the page ----
  // A chart that cannot be drawn says so in its own place; the others are not affected.
  function failed(state, error) {
    console.error("chart " + state.chart.id, error);
    P.purge(state.node);
    state.node.traces = [];
    state.node.style.height = "auto";
    state.node.replaceChildren(el("p", {
      className: "notice", role: "alert",
      textContent: "This chart could not be drawn (" + error + "). This is a defect of Crossway; please report it with this message. The figures are in the table below and in the raw data.",
    }));
    state.failed = true;
  }
  async function redraw(state) {
    try {
      if (state.failed) state.node.replaceChildren();
      state.failed = false;
      await draw(state.chart, state.view, state.node);
    } catch (error) {
      failed(state, error);
    }
  }
  const charts = $$(".plot").map((node) => {
    const chart = data.charts[Number(node.dataset.chart)];
    const section = node.closest("section");
    const state = { chart, node, section, view: chart.initial, trace: 0, point: -1, failed: false };
    const tools = $(".chart-tools", section);
    node.id = "plot-" + chart.id;
    if (chart.views.length > 1) {
      const id = "view-" + chart.id;
      const select = el("select", { id });
      chart.views.forEach((v, k) => select.append(el("option", { value: k, textContent: v.label })));
      select.value = String(chart.initial);
      select.addEventListener("change", () => { state.view = Number(select.value); state.point = -1; refresh(state); });
      tools.append(el("label", { htmlFor: id, textContent: "Show" }), select);
    } else if (chart.views[0].label) tools.append(el("span", { className: "small", textContent: chart.views[0].label }));
    const reset = el("button", { type: "button", textContent: "Reset zoom" });
    reset.setAttribute("aria-label", "Reset the zoom of: " + chart.title);
    reset.addEventListener("click", () => zoom(state, 0));
    const save = el("button", { type: "button", textContent: "Save as SVG" });
    save.setAttribute("aria-label", "Save as SVG: " + chart.title);
    save.addEventListener("click", () => state.failed || P.downloadImage(node, { format: "svg", filename: "crossway-" + chart.id, width: 1000, height: 560 }));
    tools.append(reset, save);
    const details = $(".table-of-chart", section);
    details.addEventListener("toggle", () => fillTable(state));
    node.addEventListener("keydown", (event) => key(state, event));
    return state;
  });
  function fillTable(state) {
    const details = $(".table-of-chart", state.section);
    if (!details.open) return;
    let content;
    try {
      content = chartTable(state.chart, state.chart.views[state.view]);
    } catch (error) {
      console.error("table of chart " + state.chart.id, error);
      content = el("p", { className: "notice", textContent: "This table could not be made (" + error + "). The figures are in the raw data." });
    }
    $(".scroll", details).replaceChildren(content);
    boxes.observe(content);
  }
  function refresh(state) {
    redraw(state);
    fillTable(state);
  }
  function refreshAll() {
    charts.forEach(refresh);
  }
  function zoom(state, factor) {
    if (state.failed) return;
    const layout = state.node.layout;
    const change = {};
    for (const axis of ["xaxis", "yaxis"]) {
      if (factor === 0) {
        if (state.node.home[axis]) change[axis + ".range"] = state.node.home[axis];
        else change[axis + ".autorange"] = axis === "yaxis" && state.chart.kind === "heat" ? "reversed" : true;
        continue;
      }
      if (layout[axis].type === "category" || !layout[axis].range) continue;
      const [a, b] = layout[axis].range;
      const middle = (a + b) / 2, half = ((b - a) / 2) * factor;
      change[axis + ".range"] = [middle - half, middle + half];
    }
    P.relayout(state.node, change);
  }
  function key(state, event) {
    if (state.failed || event.ctrlKey || event.metaKey || event.altKey) return;
    const traces = state.node.traces.map((t, k) => [t, k]).filter(([t]) => t.series || t.type === "heatmap");
    const steps = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (event.key === "+" || event.key === "=") zoom(state, 0.7);
    else if (event.key === "-") zoom(state, 1 / 0.7);
    else if (event.key === "0" || event.key === "Escape") { zoom(state, 0); P.Fx.unhover(state.node); }
    else if (steps[event.key] && traces.length) {
      const [down, right] = steps[event.key];
      const first = traces[0][0];
      let text, target;
      if (first.type === "heatmap") {
        const rows = first.z.length, columns = first.x.length;
        state.point = (((state.point < 0 ? 0 : state.point + right + down * columns) % (rows * columns)) + rows * columns) % (rows * columns);
        const row = Math.floor(state.point / columns), column = state.point % columns;
        target = { curveNumber: 0, pointNumber: [row, column] };
        text = first.y[row] + ", " + first.x[column] + ": " + first.customdata[row][column];
      } else {
        state.trace = (state.trace + down + traces.length) % traces.length;
        const [trace, at] = traces[state.trace];
        const n = trace.x.length;
        state.point = state.point < 0 ? 0 : (state.point + right + n) % n;
        target = { curveNumber: at, pointNumber: state.point };
        text = (trace.series.who ? trace.y[state.point] + ", " : "") + trace.name + ", " + trace.customdata[state.point];
      }
      P.Fx.hover(state.node, [target]);
      const decode = el("textarea");
      decode.innerHTML = text;
      $(".live", state.section).textContent = decode.value;
    } else return;
    event.preventDefault();
  }

  // ---- choosing mechanisms ----
  const list = $("#picker-list");
  function fillPicker() {
    if (!list) return;
    const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.who : undefined;
    list.replaceChildren();
    for (const family of [...new Set(who.map((c) => c.family))]) {
      const set = el("fieldset", {}, el("legend", { textContent: family }));
      who.forEach((c, i) => {
        if (c.family !== family) return;
        const box = el("input", { type: "checkbox", checked: shown.has(i) });
        box.dataset.who = i;
        box.addEventListener("change", () => { if (box.checked) shown.add(i); else shown.delete(i); refreshAll(); });
        set.append(el("label", {}, box, swatch(i), el("span", { textContent: c.label })));
      });
      list.append(set);
    }
    if (focused !== undefined) { const again = $("[data-who='" + focused + "']", list); if (again) again.focus(); }
  }
  $$("[data-pick]").forEach((button) => button.addEventListener("click", () => {
    shown.clear();
    who.forEach((c, i) => { if (button.dataset.pick === "all" || (button.dataset.pick === "some" && c.selected)) shown.add(i); });
    fillPicker();
    refreshAll();
  }));
  if (innerWidth <= 900) $$(".side details").forEach((d) => { d.open = false; });

  // ---- theme and print ----
  const themeButton = $("#theme");
  themeButton.addEventListener("click", () => {
    const root = document.documentElement;
    root.dataset.theme = { auto: "light", light: "dark", dark: "auto" }[root.dataset.theme];
    themeButton.textContent = "Theme: " + root.dataset.theme;
    fillPicker();
    refreshAll();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { fillPicker(); refreshAll(); });
  let opened = [];
  const beforePrint = () => {
    if (printing) return;
    printing = true;
    document.documentElement.classList.add("printing");
    opened = $$("main details:not([open])").filter((d) => !d.classList.contains("table-of-chart"));
    opened.forEach((d) => { d.open = true; });
    refreshAll();
  };
  const afterPrint = () => {
    if (!printing) return;
    printing = false;
    document.documentElement.classList.remove("printing");
    opened.forEach((d) => { d.open = false; });
    refreshAll();
  };
  addEventListener("beforeprint", beforePrint);
  addEventListener("afterprint", afterPrint);
  matchMedia("print").addEventListener("change", (m) => (m.matches ? beforePrint() : afterPrint()));
  $("#print").addEventListener("click", () => print());

  // ---- sorting tables ----
  function sortable(grid) {
    $$("thead th", grid).forEach((th, column) => {
      const button = el("button", { type: "button", textContent: th.textContent });
      th.replaceChildren(button);
      button.addEventListener("click", () => {
        const up = th.getAttribute("aria-sort") !== "ascending";
        $$("thead th", grid).forEach((other) => other.removeAttribute("aria-sort"));
        th.setAttribute("aria-sort", up ? "ascending" : "descending");
        const body = $("tbody", grid);
        const value = (tr) => { const c = tr.children[column]; return c.dataset.sort !== undefined ? Number(c.dataset.sort) : c.textContent; };
        body.append(...Array.from(body.rows).sort((a, b) => compare(value(a), value(b)) * (up ? 1 : -1)));
      });
    });
  }
  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a === "number") return -1;
    if (typeof b === "number") return 1;
    return String(a === null ? "" : a).localeCompare(String(b === null ? "" : b), "en", { numeric: true });
  }
  $$("table.sortable").forEach(sortable);

  // ---- tables wider than the page ----
  // The sign moves the table, so it is set after the observer has been served.
  const boxes = new ResizeObserver((entries) => requestAnimationFrame(() => {
    for (const box of new Set(entries.map(({ target }) => target.closest(".scroll")))) {
      if (box) box.previousElementSibling.hidden = box.scrollWidth <= box.clientWidth + 1;
    }
  }));
  $$(".scroll").forEach((box) => {
    boxes.observe(box);
    if (box.firstElementChild) boxes.observe(box.firstElementChild);
  });

  // ---- raw data ----
  if (data.raw) {
    const { columns, words, rows } = data.raw;
    const cell = (row, k) => (columns[k].word ? (row[k] === null ? null : words[row[k]]) : row[k]);
    const body = $("#raw-table tbody");
    let matching = rows, limit = 100, sortBy = null;
    const header = el("tr");
    columns.forEach((c, k) => {
      const button = el("button", { type: "button", textContent: c.name });
      const th = el("th", { scope: "col" }, button);
      button.addEventListener("click", () => {
        sortBy = { k, up: !(sortBy && sortBy.k === k && sortBy.up) };
        $$("th", header).forEach((o) => o.removeAttribute("aria-sort"));
        th.setAttribute("aria-sort", sortBy.up ? "ascending" : "descending");
        fill();
      });
      header.append(th);
    });
    $("#raw-table thead").append(header);
    const fill = () => {
      const parts = $("#raw-search").value.toLowerCase().split(/\s+/).filter(Boolean);
      matching = rows.filter((row) => {
        if (!parts.length) return true;
        const text = columns.map((_, k) => cell(row, k)).join(" ").toLowerCase();
        return parts.every((p) => text.includes(p));
      });
      if (sortBy) matching = [...matching].sort((a, b) => compare(cell(a, sortBy.k), cell(b, sortBy.k)) * (sortBy.up ? 1 : -1));
      body.replaceChildren(...matching.slice(0, limit).map((row) => {
        const tr = el("tr");
        columns.forEach((c, k) => {
          const v = cell(row, k);
          tr.append(el(k ? "td" : "th", { className: c.word ? "text" : "", textContent: v === null ? "–" : v }));
        });
        return tr;
      }));
      $("#raw-count").textContent = matching.length + " of " + rows.length + " rows" + (matching.length > limit ? ", the first " + limit + " shown" : "");
      $("#raw-more").hidden = matching.length <= limit;
    };
    $("#raw-search").addEventListener("input", () => { limit = 100; fill(); });
    $("#raw-more").addEventListener("click", () => { limit += 500; fill(); });
    // A spreadsheet would run text that begins like a formula.
    const quote = (v) => {
      if (v === null) return "";
      const text = typeof v === "string" && /^[=+\-@\t\r]/.test(v) ? "'" + v : String(v);
      return /[",\r\n]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
    };
    const offer = (id, type, make) => $(id).addEventListener("click", (event) => {
      event.currentTarget.href = URL.createObjectURL(new Blob([make()], { type }));
    });
    offer("#raw-csv", "text/csv", () => [columns.map((c) => quote(c.name)), ...rows.map((r) => columns.map((_, k) => quote(cell(r, k))))].map((r) => r.join(",")).join("\r\n"));
    offer("#raw-json", "application/json", () => JSON.stringify(rows.map((r) => Object.fromEntries(columns.map((c, k) => [c.name, cell(r, k)])))));
    fill();
  }

  fillPicker();
  Promise.all(charts.map(redraw)).then(() => { document.documentElement.dataset.ready = "true"; });
})();
