//! Every page is readable at every width, in light and dark, whatever its figures are.

use std::path::{Path, PathBuf};

use crossway_records::record::Record;
use serde_json::json;

use crate::browser::{self, Browser};
use crate::charts::{NAMES_OVERLAP, TICKS_OVERLAP};
use crate::{CHARTS, DRAWN, GROUND, OVERFLOW, RICH, report, synthetic};

/// JavaScript expression that lists the charts that are wider than their boxes, which would cut
/// them off.
const CUT_OFF: &str = "[...document.querySelectorAll('.plot')].flatMap((p) => {
    const wide = p.querySelector('.main-svg').getBoundingClientRect().width;
    return wide > p.offsetWidth + 1 ? [p.id + ': ' + wide + ' in ' + p.offsetWidth] : [];
})";

/// JavaScript expression that unfolds every table and describes each that is wider than its box,
/// with what is wrong with it: it does not say that it scrolls, or its first column does not stay
/// where it is.
const WIDE_TABLES: &str = "(async () => {
    document.querySelectorAll('main details').forEach((d) => { d.open = true; });
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    const boxes = [...document.querySelectorAll('main .scroll')];
    const isWide = (box) => box.scrollWidth > box.clientWidth + 1;
    // The page writes the signs after it has seen the new sizes, which takes some frames on a busy
    // machine.
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

/// Returns what is wrong with the tables of a page: one that scrolls on a desktop or a tablet,
/// except the raw data and those beside the charts; one on a phone that scrolls without saying so,
/// or whose first column does not stay in sight.
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
    let pages = [
        ("quick", reference()),
        ("rich", RICH.clone()),
        ("paced", report("browser-paced", &synthetic::paced())),
        ("toshiba", report("browser-toshiba", &synthetic::study::toshiba())),
        ("cluster", report("browser-cluster", &synthetic::study::cluster())),
    ];
    for (number, (name, file)) in pages.into_iter().enumerate() {
        // No width depends on colours: each plan has both schemes and all widths.
        let narrow = ["light", "dark"][number % 2];
        for (width, scheme) in [(1400, "light"), (800, "dark"), (390, narrow)] {
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

/// Gives figures the greatest lengths that they can have in a report: tiny rates, which have most
/// digits, and times of days, whose intervals have two units.
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
