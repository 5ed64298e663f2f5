//! The charts of the report: nothing is cut off, no name covers another one, and one that fails
//! leaves the others.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::browser::Browser;
use crate::{CHARTS, DRAWN, RICH, report, synthetic};

/// JavaScript expression that lists the overlapping names on the horizontal axes. Names at an angle
/// are compared by the left ends of their boxes.
pub(crate) const TICKS_OVERLAP: &str = "[...document.querySelectorAll('.plot')].flatMap((p) => {
    const names = [...p.querySelectorAll('.xtick text')].map((e) => [e.textContent, e.getBoundingClientRect(), /rotate\\((?!0)/.test(e.getAttribute('transform') || '')])
        .sort((a, b) => a[1].left - b[1].left);
    return names.slice(1).filter(([, box, turned], k) => turned ? box.left - names[k][1].left < 12 : box.left < names[k][1].right).map(([name], k) => p.id + ': ' + name);
})";

#[test]
fn no_interval_is_cut_off_at_the_frame_of_its_chart() {
    let Some(mut browser) = Browser::start("no_interval_is_cut_off_at_the_frame_of_its_chart")
    else {
        return;
    };
    let mut records = synthetic::rich();
    for record in records.iter_mut().filter(|record| record.mechanism == "tcp") {
        let factor = [0.05, 0.1, 1.0, 10.0, 20.0][record.inputs.trial as usize % 5];
        for latency in &mut record.latency_ns {
            latency.p50 = (latency.p50 as f64 * factor) as u64;
        }
        if let Some(throughput) = &mut record.throughput {
            throughput.msgs_per_s *= factor;
            throughput.bytes_per_s *= factor;
        }
        if let Some(cost) = &mut record.cost {
            cost.cpu_ns_per_msg *= factor;
        }
    }
    let page = browser.open(&report("browser-intervals", &records), 1280, "light");
    let widest = "Math.max(...[...document.querySelectorAll('.plot')].flatMap((p) => (p.traces || []).filter((t) => t.series && t.series.hi)
        .flatMap((t) => t.series.hi.map((v, k) => v / t.series.y[k]))))";
    assert!(browser.eval(&page, widest).as_f64() > Some(5.0), "an interval is wide");
    let cut = "[...document.querySelectorAll('.plot')].filter((p) => p.layout && p._fullLayout.yaxis.type === 'log').filter((p) => {
        const outside = (axis, ends) => ends.filter((v) => v > 0).map(Math.log10).some((v) => v < axis.range[0] || v > axis.range[1]);
        const ends = (low, high) => p.traces.filter((t) => t.series).flatMap((t) => (t.series[low] || []).concat(t.series[high] || []));
        const across = p._fullLayout.xaxis.type === 'log' && outside(p._fullLayout.xaxis, ends('xlo', 'xhi'));
        return across || outside(p._fullLayout.yaxis, ends('lo', 'hi'));
    }).map((p) => p.id)";
    assert_eq!(browser.eval(&page, cut), json!([]));
}

/// A copy of the page with all kinds of charts, to change.
fn copied(name: &str) -> PathBuf {
    let page = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.html"));
    std::fs::copy(&*RICH, &page).unwrap();
    page
}

/// Changes the data of the charts in a page.
fn edit_charts(page: &Path, edit: impl FnOnce(&mut [serde_json::Value])) {
    let text = std::fs::read_to_string(page).unwrap();
    let marker = "<script type=\"application/json\" id=\"data\">";
    let begin = text.find(marker).expect("the data") + marker.len();
    let end = begin + text[begin..].find("</script>").expect("the end of the data");
    let mut data: serde_json::Value = serde_json::from_str(&text[begin..end]).unwrap();
    edit(data["charts"].as_array_mut().expect("charts"));
    let made = serde_json::to_string(&data).unwrap().replace('<', "\\u003c");
    std::fs::write(page, format!("{}{made}{}", &text[..begin], &text[end..])).unwrap();
}

/// Breaks one view of one chart in the data of a page, as a defect of the code that generates
/// charts might.
fn break_view(page: &Path, chart: &str) {
    edit_charts(page, |charts| {
        let broken = charts.iter_mut().find(|c| c["id"] == chart).expect("the chart");
        let initial = usize::try_from(broken["initial"].as_u64().expect("a view")).unwrap();
        for series in broken["views"][initial]["series"].as_array_mut().expect("series") {
            series["y"] = json!(null);
        }
    });
}

/// Adds limits to every view with lines: limits close to each other, at the ends of the value axis,
/// and far beyond those ends.
fn crowd_limits(page: &Path) {
    edit_charts(page, |charts| {
        let lines = charts.iter_mut().filter(|chart| chart["kind"] == "lines");
        for view in lines.flat_map(|chart| chart["views"].as_array_mut().expect("views")) {
            let ends = |axis: &str| {
                let series = view["series"].as_array().expect("series").iter();
                let all = series.flat_map(|s| s[axis].as_array().expect("numbers"));
                let (mut low, mut high) = (f64::MAX, 0.0);
                for v in all.filter_map(serde_json::Value::as_f64).filter(|v| *v > 0.0) {
                    (low, high) = (f64::min(low, v), f64::max(high, v));
                }
                (low, high)
            };
            let ((left, right), (low, high)) = (ends("x"), ends("y"));
            let flat = |name: &str, y: f64| json!({ "name": name, "x": [], "y": [y] });
            view["levels"] = json!([
                flat("at the top", high),
                flat("nearly at the top", high * 0.97),
                flat("far above", high * 1e4),
                flat("farther above", high * 1e5),
                { "name": "curve", "x": [left, right], "y": [low, high * 0.99] },
                { "name": "lower curve", "x": [left, right], "y": [low, high * 0.95] },
                flat("at the bottom", low),
                flat("far below", low / 1e4),
            ]);
        }
    });
}

/// JavaScript expression that lists the overlapping names in every view of every chart.
pub(crate) const NAMES_OVERLAP: &str = "(async () => {
    const found = [];
    for (const plot of document.querySelectorAll('.plot')) {
        const select = plot.closest('section').querySelector('.chart-tools select');
        for (const option of select ? select.options : [{}]) {
            if (select) {
                select.value = option.value;
                select.dispatchEvent(new Event('change'));
                await new Promise((done) => setTimeout(done));
            }
            const boxes = [...plot.querySelectorAll('.annotation text')].map((e) => [e.textContent, e.getBoundingClientRect()]);
            boxes.forEach(([name, a], k) => boxes.slice(0, k).forEach(([other, b]) => {
                const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
                const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
                if (wide > 1 && high > 1) found.push(plot.id + ': ' + name + ', ' + other);
            }));
        }
    }
    return found;
})()";

/// JavaScript expression that lists the names in every view of every scatter chart that an error
/// bar crosses, after the number of names.
const NAMES_CROSSED: &str = "(async () => {
    const found = [];
    let names = 0;
    for (const plot of document.querySelectorAll('.plot')) {
        const select = plot.closest('section').querySelector('.chart-tools select');
        for (const option of select ? select.options : [{}]) {
            if (select) {
                select.value = option.value;
                select.dispatchEvent(new Event('change'));
                await new Promise((done) => setTimeout(done, 50));
            }
            const bars = [...plot.querySelectorAll('.errorbars path')].map((e) => e.getBoundingClientRect());
            const texts = plot.id === 'plot-trade-off' ? '.textpoint text, .annotation text' : '.textpoint text';
            for (const e of plot.querySelectorAll(texts)) {
                const a = e.getBoundingClientRect();
                names++;
                const crossed = bars.some((b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1);
                if (crossed) found.push(plot.id + ': ' + option.textContent + ': ' + e.textContent);
            }
        }
    }
    return [names, ...found];
})()";

#[test]
fn no_error_bar_crosses_a_name() {
    let Some(mut browser) = Browser::start("no_error_bar_crosses_a_name") else { return };
    let mut wide = synthetic::rich();
    for record in &mut wide {
        let factor = [0.8, 0.9, 1.0, 1.2, 1.4][record.inputs.trial as usize % 5];
        record.latency_ns.iter_mut().for_each(|l| l.p50 = (l.p50 as f64 * factor) as u64);
        record.cost.iter_mut().for_each(|cost| cost.cpu_ns_per_msg *= factor);
    }
    let file = report("browser-crossed", &wide);
    for width in [390, 1400] {
        let page = browser.open(&file, width, "light");
        let found = browser.eval(&page, NAMES_CROSSED);
        let found = found.as_array().expect("a list");
        assert!(found[0].as_u64() > Some(20), "markers have names: {found:?}");
        assert_eq!(found.len(), 1, "at {width}: {found:?}");
    }
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn names_in_charts_do_not_overlap() {
    let Some(mut browser) = Browser::start("names_in_charts_do_not_overlap") else { return };
    let crowded = copied("browser-crowded");
    crowd_limits(&crowded);
    for (file, width) in [(&*RICH, 400), (&crowded, 400), (&crowded, 1400)] {
        let page = browser.open(file, width, "light");
        assert_eq!(browser.eval(&page, NAMES_OVERLAP), json!([]), "{file:?} at {width}");
    }
    let page = browser.open(&crowded, 400, "light");
    let names = "[...document.querySelectorAll('.annotation')].filter((e) => e.textContent.includes('nearly at the top')).length";
    assert!(browser.eval(&page, names).as_i64() > Some(1), "limits are named");
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn a_chart_that_fails_says_so_and_leaves_the_others() {
    let Some(mut browser) = Browser::start("a_chart_that_fails_says_so_and_leaves_the_others")
    else {
        return;
    };
    let file = copied("browser-broken");
    break_view(&file, "round-trip");
    let page = browser.open(&file, 1280, "light");
    let charts = browser.eval(&page, CHARTS).as_i64().expect("a number");
    assert_eq!(browser.eval(&page, DRAWN), json!(charts - 1), "all but the broken one");
    let says = "document.querySelector('#plot-round-trip').textContent";
    let text = browser.eval(&page, says);
    assert!(text.as_str().unwrap().contains("could not be drawn (TypeError"), "{text}");
    // Its table fails in its own place, too, and keys, tools and a change of the theme do no harm.
    browser.eval(
        &page,
        "document.querySelectorAll('.table-of-chart').forEach((d) => { d.open = true; })",
    );
    let table = "document.querySelector('#round-trip .table-of-chart .scroll').textContent";
    browser.wait_for(&page, &format!("{table}.includes('could not be made')"));
    browser.eval(&page, "document.querySelector('#plot-round-trip').focus()");
    browser.press(&page, "ArrowRight", 39);
    browser.eval(
        &page,
        "document.querySelectorAll('#round-trip .chart-tools button').forEach((b) => b.click()); document.querySelector('#theme').click()",
    );
    browser.wait_for(&page, &format!("{DRAWN} === {}", charts - 1));
    // Another view of the chart is drawn, and the broken one is reported again.
    let choose = |view: &str| {
        format!(
            "(() => {{ const s = document.querySelector('#view-round-trip'); s.selectedIndex = {view}; s.dispatchEvent(new Event('change')); }})()"
        )
    };
    let initial = browser.eval(&page, "document.querySelector('#view-round-trip').selectedIndex");
    let initial = initial.as_i64().expect("an index");
    let other = if initial == 0 { 1 } else { 0 };
    browser.eval(&page, &choose(&other.to_string()));
    browser.wait_for(&page, &format!("{DRAWN} === {charts}"));
    assert!(!browser.eval(&page, says).as_str().unwrap().contains("could not be drawn"));
    browser.eval(&page, &choose(&initial.to_string()));
    browser.wait_for(
        &page,
        &format!("{DRAWN} === {} && {says}.includes('could not be drawn')", charts - 1),
    );
    // The console names the chart; no exception is left uncaught.
    assert!(
        browser.complaints().iter().all(|c| c.contains("chart round-trip")),
        "{:?}",
        browser.complaints()
    );
}
