//! The report in a real browser: rendered, readable, usable with the keyboard, and without network
//! access.

#[path = "../browser/mod.rs"]
mod browser;
mod charts;
#[path = "../../../report/tests/synthetic/mod.rs"]
mod synthetic;
mod widths;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use browser::Browser;
use charts::TICKS_OVERLAP;
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

/// A page with one chart of each kind, for tests that do not change it.
static RICH: LazyLock<PathBuf> = LazyLock::new(|| report("browser-rich", &synthetic::rich()));

const CHARTS: &str = "document.querySelectorAll('.plot').length";
const DRAWN: &str = "[...document.querySelectorAll('.plot')]
    .filter((p) => p.querySelector('.main-svg') && p.querySelector('.trace, .heatmaplayer image, .barlayer path')).length";
const OVERFLOW: &str = "document.documentElement.scrollWidth - innerWidth";
/// JavaScript expression for the lightness of the background behind the text, from 0 to 255.
const GROUND: &str = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3)
    .reduce((sum, part) => sum + Number(part), 0) / 3";

#[test]
fn the_report_works_in_a_browser() {
    let Some(mut browser) = Browser::start("the_report_works_in_a_browser") else { return };
    let file = &*RICH;

    // Desktop, light.
    let page = browser.open(file, 1280, "light");
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

    // With the keyboard alone: toggle a mechanism, step through a chart, zoom, sort, change the
    // theme.
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

    // Tables use the available width, their first column stays visible, and commands are formatted
    // as such. Figures beyond their limit have the longest remarks.
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
    let page = browser.open(file, 1280, "dark");
    assert!(browser.eval(&page, GROUND).as_f64() < Some(60.0), "dark");
    assert_eq!(browser.eval(&page, DRAWN), charts);

    // A phone.
    for width in [390, 320] {
        let page = browser.open(file, width, "light");
        assert_eq!(browser.eval(&page, DRAWN), charts);
        assert_eq!(browser.eval(&page, "innerWidth"), json!(width), "nothing widens the page");
        assert!(
            browser.eval(&page, OVERFLOW).as_i64() <= Some(0),
            "no sideways scrolling at {width}"
        );
        assert_eq!(browser.eval(&page, TICKS_OVERLAP), json!([]), "ticks at {width}");
    }

    // On paper: everything unfolded, light even if the screen is dark, nothing wider than the
    // paper.
    let page = browser.open(file, 1280, "dark");
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
