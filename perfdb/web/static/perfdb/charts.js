"use strict";
// Draws what the server computed; no figure is made here.
(function () {
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const data = (id) => { const node = document.getElementById(id); return node ? JSON.parse(node.textContent) : null; };

  function layout(extra) {
    const axis = { gridcolor: css("--line"), zerolinecolor: css("--line"), linecolor: css("--line"), tickcolor: css("--line") };
    return Object.assign({
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: css("--ink"), size: 12 },
      margin: { l: 64, r: 12, t: 12, b: 42 }, hovermode: "closest", showlegend: false,
      hoverlabel: { bgcolor: css("--card"), font: { color: css("--ink") }, bordercolor: css("--line"), align: "left" },
    }, extra, { xaxis: Object.assign({}, axis, extra.xaxis), yaxis: Object.assign({}, axis, extra.yaxis) });
  }
  const config = { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["lasso2d", "select2d"] };

  function series(node, chart) {
    const colour = { regressed: css("--bad"), improved: css("--good"), changed: css("--warn") };
    const traces = [
      { x: chart.launch_position, y: chart.launch_value, mode: "markers", type: "scatter", hoverinfo: "skip", marker: { size: 5, color: css("--soft"), opacity: 0.6 } },
      { x: chart.position, y: chart.median, mode: "lines+markers", text: chart.text, hovertemplate: "%{text}<extra></extra>", customdata: chart.links,
        line: { color: css("--accent"), width: 1.5 }, marker: { size: 6, color: css("--accent") },
        error_y: { type: "data", symmetric: false, array: chart.above, arrayminus: chart.below, color: css("--accent"), thickness: 1, width: 0 } },
    ];
    const shapes = [], notes = [];
    for (const change of chart.changes) {
      const tone = colour[change.direction] || css("--soft");
      shapes.push({ type: "rect", xref: "x", yref: "paper", x0: change.good + 0.5, x1: (change.kind === "episode" && change.end !== null ? change.end : change.at) - 0.5 + 0.02, y0: 0, y1: 1, fillcolor: tone, opacity: 0.14, line: { width: 0 } });
      shapes.push({ type: "line", xref: "x", yref: "paper", x0: change.at - 0.5, x1: change.at - 0.5, y0: 0, y1: 1, line: { color: tone, width: 1.5 } });
      notes.push({ x: change.at - 0.5, xref: "x", y: 1, yref: "paper", text: { regressed: "▲", improved: "▼" }[change.direction] || "◆", showarrow: false, font: { color: tone, size: 14 }, xanchor: "left", yanchor: "top" });
    }
    for (const at of chart.boundaries) shapes.push({ type: "line", xref: "x", yref: "paper", x0: at - 0.5, x1: at - 0.5, y0: 0, y1: 1, line: { color: css("--soft"), width: 1, dash: "dot" } });
    for (const at of chart.failed) notes.push({ x: at, xref: "x", y: 1, yref: "paper", text: "∞", showarrow: false, font: { color: css("--bad"), size: 15 }, yanchor: "bottom", hovertext: "the percentile fell on a failed request" });
    for (const at of chart.unusable) notes.push({ x: at, xref: "x", y: 0, yref: "paper", text: "⊘", showarrow: false, font: { color: css("--warn"), size: 13 }, yanchor: "bottom", hovertext: "no usable launch" });
    const plot = layout({ shapes, annotations: notes, margin: { l: 64, r: 12, t: 24, b: 42 },
      xaxis: { title: { text: "commit (position on the branch)" }, zeroline: false }, yaxis: { title: { text: chart.unit }, exponentformat: "SI", zeroline: false, rangemode: "normal" } });
    Plotly.react(node, traces, plot, config);
    if (!node.dataset.bound) {
      node.dataset.bound = "1";
      node.on("plotly_click", (event) => { const link = event.points[0].customdata; if (link) location.href = link; });
    }
  }

  function samples(node, chart) {
    const traces = [
      { x: chart.index, y: chart.values, mode: "markers", type: "scatter", marker: { size: 4, color: css("--accent"), opacity: 0.7 }, hovertemplate: "%{y}<extra></extra>" },
      { x: chart.counts, y: chart.middles, type: "bar", orientation: "h", xaxis: "x2", marker: { color: css("--accent"), opacity: 0.5 }, hoverinfo: "skip" },
    ];
    Plotly.react(node, traces, layout({ bargap: 0.05, xaxis: { domain: [0, 0.78], title: { text: "sample, in the order taken" } }, xaxis2: { domain: [0.82, 1], showticklabels: false, gridcolor: css("--line") }, yaxis: { title: { text: chart.unit }, exponentformat: "SI" } }), config);
  }

  function bisection(node, chart) {
    const x = [], y = [], dead = [];
    for (const probe of chart.probes) { for (const value of probe.values) { x.push(probe.index); y.push(value); } if (probe.unbuildable) dead.push(probe.index); }
    const traces = [{ x, y, mode: "markers", type: "scatter", marker: { size: 8, color: css("--accent"), opacity: 0.75 }, hovertemplate: "commit %{x}: %{y}<extra></extra>" }];
    const notes = dead.map((at) => ({ x: at, xref: "x", y: 0, yref: "paper", text: "⊘", showarrow: false, font: { color: css("--warn"), size: 14 }, yanchor: "bottom" }));
    Plotly.react(node, traces, layout({ annotations: notes, xaxis: { title: { text: "commit of the range" }, range: [-0.5, chart.shas.length - 0.5] }, yaxis: { title: { text: chart.unit }, exponentformat: "SI" } }), config);
  }

  const draw = { series, samples, bisection };
  function drawAll() {
    for (const node of document.querySelectorAll("[data-chart]")) {
      const source = data(node.dataset.source);
      const chart = node.dataset.index === undefined ? source : source[Number(node.dataset.index)];
      if (chart) draw[node.dataset.chart](node, chart);
    }
  }
  document.addEventListener("DOMContentLoaded", drawAll);
  document.addEventListener("themechange", drawAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
})();
