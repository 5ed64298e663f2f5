//! The report in a real browser: rendered, readable, usable with the keyboard, and without network access.

mod browser;
#[path = "../../report/tests/synthetic/mod.rs"]
mod synthetic;

use std::path::{Path, PathBuf};

use browser::Browser;
use crossway_records::inputs::Workload;
use crossway_records::record::Record;
use serde_json::json;

/// Runs `crossway report` on synthetic records and returns the page's path.
fn report(name: &str, records: &[Record]) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    synthetic::write(&dir, records);
    synthetic::write_surroundings(&dir);
    let page = dir.join("report.html");
    assert_cmd::cargo::cargo_bin_cmd!("crossway")
        .arg("report")
        .arg(&dir)
        .arg("-o")
        .arg(&page)
        .assert()
        .success();
    page
}

const CHARTS: &str = "document.querySelectorAll('.plot').length";
const DRAWN: &str = "[...document.querySelectorAll('.plot')]
    .filter((p) => p.querySelector('.main-svg') && p.querySelector('.trace, .heatmaplayer image, .barlayer path')).length";
const OVERFLOW: &str = "document.documentElement.scrollWidth - innerWidth";
/// JavaScript expression for the lightness of the background behind the text, from 0 to 255.
const GROUND: &str = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3)
    .reduce((sum, part) => sum + Number(part), 0) / 3";

/// JavaScript expression that lists the overlapping names on the horizontal axes. Names at an angle are compared by the
/// left ends of their boxes.
const TICKS_OVERLAP: &str = "[...document.querySelectorAll('.plot')].flatMap((p) => {
    const names = [...p.querySelectorAll('.xtick text')].map((e) => [e.textContent, e.getBoundingClientRect(), /rotate\\((?!0)/.test(e.getAttribute('transform') || '')])
        .sort((a, b) => a[1].left - b[1].left);
    return names.slice(1).filter(([, box, turned], k) => turned ? box.left - names[k][1].left < 12 : box.left < names[k][1].right).map(([name], k) => p.id + ': ' + name);
})";

#[test]
fn the_report_works_in_a_browser() {
    let Some(mut browser) = Browser::start("the_report_works_in_a_browser") else { return };
    let file = report("browser-rich", &synthetic::rich());

    // Desktop, light.
    let page = browser.open(&file, 1280, "light");
    let charts = browser.eval(&page, CHARTS);
    assert_eq!(charts, json!(13), "one chart of each kind");
    assert_eq!(browser.eval(&page, DRAWN), charts, "every chart is drawn");
    assert!(browser.eval(&page, OVERFLOW).as_i64() <= Some(0), "no sideways scrolling");
    assert!(browser.eval(&page, GROUND).as_f64() > Some(200.0), "light");
    assert!(
        browser.eval(&page, "document.querySelectorAll('#raw-table tbody tr').length").as_i64()
            > Some(50)
    );

    // Every picture of every chart can be drawn.
    let all = "(async () => {
        let drawn = 0;
        for (const select of document.querySelectorAll('.chart-tools select')) {
            const plot = select.closest('section').querySelector('.plot');
            for (const option of select.options) {
                select.value = option.value;
                select.dispatchEvent(new Event('change'));
                await new Promise((done) => setTimeout(done));
                if (!plot.querySelector('.main-svg')) return 'not drawn: ' + option.textContent;
                drawn++;
            }
        }
        return drawn;
    })()";
    assert!(browser.eval(&page, all).as_i64() > Some(50), "views are drawn");

    // With the keyboard alone: toggle a mechanism, step through a chart, zoom, sort, change the theme.
    let traces = "document.querySelector('#plot-round-trip').traces.length";
    let before = browser.eval(&page, traces).as_i64().expect("a number");
    browser.eval(&page, "document.querySelector('#picker-list input:checked').focus()");
    browser.press(&page, " ", 32);
    browser.wait_for(&page, &format!("{traces} === {}", before - 1));
    browser.eval(&page, "document.querySelector('#plot-round-trip').focus()");
    browser.press(&page, "ArrowRight", 39);
    browser.wait_for(
        &page,
        "/ns|µs|ms/.test(document.querySelector('#round-trip .live').textContent)",
    );
    let range = "JSON.stringify(document.querySelector('#plot-round-trip').layout.yaxis.range)";
    let wide = browser.eval(&page, range);
    browser.press(&page, "+", 187);
    browser.wait_for(&page, &format!("{range} !== {wide}"));
    browser.eval(&page, "document.querySelector('#comparison thead button').focus()");
    browser.press(&page, " ", 32);
    browser.wait_for(
        &page,
        "document.querySelector('#comparison th').getAttribute('aria-sort') === 'ascending'",
    );
    browser.eval(
        &page,
        "document.querySelector('#theme').click(); document.querySelector('#theme').click()",
    );
    browser.wait_for(&page, &format!("{GROUND} < 60"));
    let unnamed = "[...document.querySelectorAll('button, select, input, [tabindex]')]
        .filter((e) => !(e.textContent.trim() || e.getAttribute('aria-label') || (e.labels && e.labels.length))).length";
    assert_eq!(browser.eval(&page, unnamed), json!(0), "every control has a name");

    // The table next to a chart contains its figures, and a search filters the raw data.
    browser.eval(&page, "document.querySelector('#round-trip .table-of-chart').open = true");
    browser.wait_for(
        &page,
        "document.querySelectorAll('#round-trip .table-of-chart tbody tr').length > 20",
    );
    browser.eval(
        &page,
        "(() => { const box = document.querySelector('#raw-search'); box.value = 'posix-mq'; box.dispatchEvent(new Event('input')); })()",
    );
    browser.wait_for(
        &page,
        "[...document.querySelectorAll('#raw-table tbody tr')].every((r) => r.textContent.includes('posix-mq'))",
    );

    // Tables use the available width, their first column stays visible, and commands are formatted as such. Figures
    // beyond their limit have the longest remarks.
    let mut beyond = synthetic::rich();
    beyond.iter_mut().for_each(|record| record.calibration.blocking_exchange_ns = Some(1e9));
    let wide = browser.open(&report("browser-beyond", &beyond), 1400, "light");
    let marked =
        "document.querySelector('#comparison tbody').textContent.includes('beyond its limit')";
    assert_eq!(browser.eval(&wide, marked), json!(true));
    let fits = "[...document.querySelectorAll('#comparison details')].filter((d) => {
        d.open = true;
        const box = d.querySelector('.scroll');
        return box.scrollWidth > box.clientWidth + 1;
    }).map((d) => d.textContent.slice(0, 80) + d.querySelector('table').offsetWidth)";
    assert_eq!(browser.eval(&wide, fits), json!([]), "the tables fit");
    assert_eq!(
        browser.eval(
            &wide,
            "getComputedStyle(document.querySelector('#comparison tbody th')).position"
        ),
        json!("sticky")
    );
    let ticks = "[...document.querySelectorAll('main p, main li, main td, main h1')].filter((e) => e.textContent.includes('`')).length";
    assert_eq!(browser.eval(&wide, ticks), json!(0), "backticks are rendered");
    let reasons = "getComputedStyle(document.querySelector('#troubles td.text')).textAlign";
    assert!(
        browser.eval(&wide, reasons) == json!("left")
            || browser.eval(&wide, reasons) == json!("start")
    );
    // The value axis spans the data, not the limits that are drawn as well.
    let spans = "[...document.querySelectorAll('.plot')].filter((p) => p.layout && p.layout.yaxis.type === 'log' && p.layout.yaxis.range).map((p) => {
        const ys = p.traces.filter((t) => t.series).flatMap((t) => t.y).filter((v) => v > 0).map(Math.log10);
        const [low, high] = p.layout.yaxis.range;
        return Math.max(Math.min(...ys) - low, high - Math.max(...ys)) / Math.max(1, Math.max(...ys) - Math.min(...ys));
    }).filter((room) => room > 1)";
    assert_eq!(browser.eval(&wide, spans), json!([]), "axes follow the data");

    // Dark if the system is dark.
    let page = browser.open(&file, 1280, "dark");
    assert!(browser.eval(&page, GROUND).as_f64() < Some(60.0), "dark");
    assert_eq!(browser.eval(&page, DRAWN), charts);

    // A phone.
    for width in [390, 320] {
        let page = browser.open(&file, width, "light");
        assert_eq!(browser.eval(&page, DRAWN), charts);
        assert_eq!(browser.eval(&page, "innerWidth"), json!(width), "nothing widens the page");
        assert!(
            browser.eval(&page, OVERFLOW).as_i64() <= Some(0),
            "no sideways scrolling at {width}"
        );
        assert_eq!(browser.eval(&page, TICKS_OVERLAP), json!([]), "ticks at {width}");
    }

    // On paper: everything unfolded, light even if the screen is dark, nothing wider than the paper.
    let page = browser.open(&file, 1280, "dark");
    browser.on(&page, "Emulation.setEmulatedMedia", json!({ "media": "print" }));
    browser.wait_for(
        &page,
        "document.querySelectorAll('#comparison details:not([open])').length === 0",
    );
    browser.wait_for(&page, &format!("{GROUND} > 250"));
    let printed = browser.on(&page, "Page.printToPDF", json!({ "printBackground": true }));
    assert!(printed["data"].as_str().is_some_and(|data| data.len() > 50_000));

    assert_eq!(browser.complaints(), [""; 0]);
    assert_eq!(browser.requests_outside(), [""; 0]);
}

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

#[test]
fn hostile_records_run_nothing() {
    let Some(mut browser) = Browser::start("hostile_records_run_nothing") else { return };
    let attack = "</script><script>window.pwned = 1</script><img src=x onerror='window.pwned=2'>";
    let mut records = synthetic::run(
        &synthetic::MADE[..3],
        &[64, 4096, 65_536].map(|s| synthetic::Ask::idle(Workload::PingPong, s)),
        5,
        8,
    );
    for record in &mut records {
        record.mechanism = format!("{}{attack}", record.mechanism);
        record.case = format!("{}{attack}", record.case);
        record.warnings.push(attack.to_owned());
    }
    records.push(synthetic::skipped(attack, attack, attack));
    let file = report("browser-hostile", &records);
    let page = browser.open(&file, 1280, "light");
    browser.eval(&page, "document.querySelectorAll('details').forEach((d) => { d.open = true; })");
    browser.eval(&page, "document.querySelector('#plot-round-trip').focus()");
    browser.press(&page, "ArrowRight", 39);
    browser.wait_for(
        &page,
        "document.querySelector('#round-trip .live').textContent.includes('</script>')",
    );
    assert_eq!(browser.eval(&page, "typeof window.pwned"), json!("undefined"));
    assert_eq!(browser.eval(&page, "document.images.length"), json!(0));
    assert_eq!(browser.complaints(), [""; 0]);
    assert_eq!(browser.requests_outside(), [""; 0]);
}

/// JavaScript expression that lists the charts that are wider than their boxes, which would cut them off.
const CUT_OFF: &str = "[...document.querySelectorAll('.plot')].flatMap((p) => {
    const wide = p.querySelector('.main-svg').getBoundingClientRect().width;
    return wide > p.offsetWidth + 1 ? [p.id + ': ' + wide + ' in ' + p.offsetWidth] : [];
})";

/// JavaScript expression that unfolds every table and describes each that is wider than its box, with what is wrong
/// with it: it does not say that it scrolls, or its first column does not stay where it is.
const WIDE_TABLES: &str = "(async () => {
    document.querySelectorAll('main details').forEach((d) => { d.open = true; });
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    const boxes = [...document.querySelectorAll('main .scroll')];
    const isWide = (box) => box.scrollWidth > box.clientWidth + 1;
    // The page writes the signs after it has seen the new sizes, which takes some frames on a busy machine.
    const isSettled = (box) => isWide(box) === box.previousElementSibling.offsetHeight > 0;
    for (let i = 0; i < 300 && (i < 3 || !boxes.every(isSettled)); i++) await frame();
    return boxes.flatMap((box) => {
        const wide = isWide(box);
        const sign = box.previousElementSibling;
        const says = sign.textContent.includes('Scroll sideways') && sign.offsetHeight > 0;
        const first = box.querySelector('tbody th');
        const before = first && first.getBoundingClientRect().left;
        box.scrollLeft = 200;
        const moved = first && Math.abs(first.getBoundingClientRect().left - before) > 1;
        box.scrollLeft = 0;
        const wrong = [says !== wide && 'sign', wide && moved && 'first column'].filter(Boolean);
        const where = box.closest('section').id;
        return wide || says ? [{ where, is: box.getAttribute('aria-label') + ' ' + box.scrollWidth, wrong }] : [];
    });
})()";

/// Returns what is wrong with the tables of a page: one that scrolls on a desktop or a tablet, except the raw data and
/// those beside the charts; one on a phone that scrolls without saying so, or whose first column does not stay in sight.
fn wrong_tables(browser: &mut Browser, page: &browser::Page, width: u32) -> Vec<String> {
    let tables = browser.eval(page, WIDE_TABLES);
    let tables = tables.as_array().expect("a list");
    let is_wrong = |table: &&serde_json::Value| {
        let is_chart = table["is"].as_str().expect("a name").contains(", as a table");
        let may_scroll = width < 500 || is_chart || table["where"] == "raw";
        !may_scroll || table["wrong"] != json!([])
    };
    let mut wrong: Vec<String> = tables.iter().filter(is_wrong).map(ToString::to_string).collect();
    if width < 500 && !tables.iter().any(|table| table["where"] == "comparison") {
        wrong.push(format!("no table scrolls: {tables:?}"));
    }
    wrong
}

/// The reference run, a run of the plan `quick`.
fn reference() -> PathBuf {
    let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../records/2026-11-26-epyc-2cpu");
    let page = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser-reference.html");
    assert_cmd::cargo::cargo_bin_cmd!("crossway")
        .arg("report")
        .arg(run)
        .arg("-o")
        .arg(&page)
        .assert()
        .success();
    page
}

#[test]
fn every_plan_is_readable_at_every_width() {
    let Some(mut browser) = Browser::start("every_plan_is_readable_at_every_width") else { return };
    let mut wrong = Vec::new();
    for (name, file) in [
        ("quick", reference()),
        ("rich", report("browser-widths", &synthetic::rich())),
        ("paced", report("browser-paced", &synthetic::paced())),
        ("toshiba", report("browser-toshiba", &synthetic::study::toshiba())),
        ("cluster", report("browser-cluster", &synthetic::study::cluster())),
    ] {
        for (width, scheme) in [(1400, "light"), (800, "dark"), (390, "light"), (390, "dark")] {
            let page = browser.open(&file, width, scheme);
            let at = format!("{name} at {width}, {scheme}");
            let charts = browser.eval(&page, CHARTS);
            assert!(charts.as_i64() > Some(0), "{at}");
            assert_eq!(browser.eval(&page, DRAWN), charts, "{at}: every chart is drawn");
            for wrong_in_charts in [TICKS_OVERLAP, NAMES_OVERLAP, CUT_OFF] {
                let found = browser.eval(&page, wrong_in_charts);
                wrong
                    .extend(found.as_array().expect("a list").iter().map(|f| format!("{at}: {f}")));
            }
            let ground = browser.eval(&page, GROUND).as_f64().expect("a number");
            assert_eq!(ground < 60.0, scheme == "dark", "{at}");
            let tables = wrong_tables(&mut browser, &page, width);
            wrong.extend(tables.iter().map(|table| format!("{at}: {table}")));
            assert_eq!(browser.eval(&page, "innerWidth"), json!(width), "{at}");
            assert!(browser.eval(&page, OVERFLOW).as_i64() <= Some(0), "{at}: sideways scrolling");
            browser.on(&page, "Page.close", json!({}));
        }
    }
    assert_eq!(wrong, [""; 0]);
    assert_eq!(browser.complaints(), [""; 0]);
    assert_eq!(browser.requests_outside(), [""; 0]);
}

/// Gives figures the greatest lengths that they can have in a report: tiny rates, which have most digits, and times
/// of days, whose intervals have two units.
fn lengthened(mut records: Vec<Record>) -> Vec<Record> {
    for record in &mut records {
        let by = 1.0 + f64::from(record.inputs.trial) * 0.37;
        if let Some(throughput) = &mut record.throughput {
            throughput.msgs_per_s = 0.000_123_4 * by;
            throughput.bytes_per_s = 0.000_123_4 * by;
        }
        let far = (456_789e9 * by) as u64;
        for latency in &mut record.latency_ns {
            (latency.mean, latency.p50, latency.p90) = (123_456e9 * by, far / 3, far / 2);
            (latency.p99, latency.p999, latency.p9999) =
                (latency.p99.map(|_| far), latency.p999.map(|_| far), latency.p9999.map(|_| far));
            latency.max = far;
        }
    }
    records
}

#[test]
fn the_longest_figures_widen_no_page() {
    let Some(mut browser) = Browser::start("the_longest_figures_widen_no_page") else { return };
    for (name, records) in [
        ("rich", synthetic::rich()),
        ("paced", synthetic::paced()),
        ("toshiba", synthetic::study::toshiba()),
        ("cluster", synthetic::study::cluster()),
    ] {
        let file = report(&format!("browser-long-{name}"), &lengthened(records));
        for width in [320, 390, 800] {
            let page = browser.open(&file, width, "light");
            let at = format!("{name} at {width}");
            // A page that is too wide makes a phone's window wider than its screen.
            assert_eq!(
                browser.eval(&page, "innerWidth"),
                json!(width),
                "{at}: {}",
                browser.eval(&page, WIDEST)
            );
            assert!(
                browser.eval(&page, OVERFLOW).as_i64() <= Some(0),
                "{at}: sideways scrolling: {}",
                browser.eval(&page, WIDEST)
            );
            browser.on(&page, "Page.close", json!({}));
        }
    }
    assert_eq!(browser.complaints(), [""; 0]);
}

/// JavaScript expression that lists what is wider than the screen and in no box that scrolls.
const WIDEST: &str = "[...document.querySelectorAll('main *, .bar *, .side *')]
    .filter((e) => !e.closest('.scroll, .plot') && e.getBoundingClientRect().right > screen.width + 0.5)
    .slice(0, 20).map((e) => e.tagName + '.' + e.className + ' ' + e.textContent.slice(0, 60))";

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

/// Breaks one view of one chart in the data of a page, as a defect of the code that generates charts might.
fn break_view(page: &Path, chart: &str) {
    edit_charts(page, |charts| {
        let broken = charts.iter_mut().find(|c| c["id"] == chart).expect("the chart");
        let initial = usize::try_from(broken["initial"].as_u64().expect("a view")).unwrap();
        for series in broken["views"][initial]["series"].as_array_mut().expect("series") {
            series["y"] = json!(null);
        }
    });
}

/// Adds limits to every view with lines: limits close to each other, at the ends of the value axis, and far beyond
/// those ends.
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
const NAMES_OVERLAP: &str = "(async () => {
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

#[test]
fn names_in_charts_do_not_overlap() {
    let Some(mut browser) = Browser::start("names_in_charts_do_not_overlap") else { return };
    let plain = report("browser-names", &synthetic::rich());
    let crowded = report("browser-crowded", &synthetic::rich());
    crowd_limits(&crowded);
    for (file, width) in [(&plain, 400), (&crowded, 400), (&crowded, 1400)] {
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
    let file = report("browser-broken", &synthetic::rich());
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
