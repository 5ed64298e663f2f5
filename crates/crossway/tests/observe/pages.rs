//! The page of a recording in a browser.

use std::fmt::Write as _;

use crate::{browser, observe, text};

/// A log of five processes: two clients of a server over TCP, which asks another one over a UNIX
/// socket, which writes into a pipe.
fn busy_log() -> String {
    let mut log = String::new();
    for (pid, name) in
        [(1, "client-with-a-long-name"), (2, "client"), (3, "server"), (4, "store"), (5, "log")]
    {
        log.push_str(&format!(
            "{pid} 1.000000 execve(\"/bin/{name}\", [\"\"], 0x7f) = 0 <0.0001>\n"
        ));
    }
    let mut at = 2_000_000_u64;
    let mut line = |pid: u32, call: &str, descriptor: &str, size: u64| {
        at += 7 + size % 11;
        let time = format!("{}.{:06}", at / 1_000_000, at % 1_000_000);
        log.push_str(&format!(
            "{pid} {time} {call}(3<{descriptor}>, \"\"..., {size}) = {size} <0.000003>\n"
        ));
    };
    for n in 0..200_u64 {
        let client = 1 + n as u32 % 2;
        let (there, back) = (
            format!("TCP:[127.0.0.1:500{client}->127.0.0.1:80]"),
            format!("TCP:[127.0.0.1:80->127.0.0.1:500{client}]"),
        );
        for (pid, call, descriptor, size) in [
            (client, "write", there.as_str(), 60 + n % 90),
            (3, "read", back.as_str(), 60 + n % 90),
            (3, "write", "UNIX-STREAM:[10->11]", 30),
            (4, "read", "UNIX-STREAM:[11->10]", 30),
            (4, "write", "pipe:[77]", 9),
            (5, "read", "pipe:[77]", 9),
            (4, "write", "UNIX-STREAM:[11->10]", 4000 + n * 7),
            (3, "read", "UNIX-STREAM:[10->11]", 4000 + n * 7),
            (3, "write", back.as_str(), 4100 + n * 7),
            (client, "read", there.as_str(), 4100 + n * 7),
        ] {
            line(pid, call, descriptor, size);
        }
    }
    log
}

#[test]
fn the_page_of_a_recording_is_readable_in_a_browser_at_every_width() {
    let test = "the_page_of_a_recording_is_readable_in_a_browser_at_every_width";
    let Some(mut browser) = browser::Browser::start(test) else { return };
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("log"), busy_log()).unwrap();
    text(&observe(dir.path(), &["--import", "log", "--record", "rec"]));
    text(&observe(dir.path(), &["--recording", "rec", "--page", "rec.html"]));
    let file = dir.path().join("rec.html");
    // Names of boxes stay in their boxes, and labels of arrows do not cover each other.
    let outside = "[...document.querySelectorAll('.picture g')].filter((g) => g.getClientRects().length && g.querySelector('.box'))
        .filter((g) => { const box = g.querySelector('.box').getBoundingClientRect();
            return [...g.querySelectorAll('text')].some((t) => { const r = t.getBoundingClientRect(); return r.left < box.left || r.right > box.right; }); }).length";
    let covered = "(() => { const boxes = [...document.querySelectorAll('.on-arrow')].map((t) => t.getBoundingClientRect()).filter((r) => r.width);
        return boxes.filter((a, i) => boxes.slice(i + 1).some((b) => a.left < b.right && b.left < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom)).length; })()";
    let shown =
        "[...document.querySelectorAll('.picture')].filter((p) => p.getClientRects().length)";
    for width in [1400, 800, 390] {
        for scheme in ["light", "dark"] {
            let page = browser.open(&file, width, scheme);
            let at = format!("{width} {scheme}");
            let mut number = |expression: &str| browser.eval(&page, expression).as_i64().unwrap();
            assert!(number("document.documentElement.scrollWidth - innerWidth") <= 0, "{at}");
            assert_eq!(number(&format!("{shown}.length")), 1, "{at}");
            assert_eq!(number(&format!("{shown}[0].querySelectorAll('.box').length")), 5, "{at}");
            // Two TCP connections and the UNIX socket both ways, and the pipe.
            assert_eq!(number(&format!("{shown}[0].querySelectorAll('.arrow').length")), 7, "{at}");
            assert_eq!(number(outside), 0, "{at}");
            assert_eq!(number(covered), 0, "{at}");
            assert_eq!(number("document.querySelectorAll('.bars').length"), 14, "{at}");
        }
    }
    assert_eq!(browser.complaints(), [""; 0]);
    assert_eq!(browser.requests_outside(), [""; 0]);
}

/// A log of pairs of processes with a pipe each; the first pairs send most.
fn many_pipes(pairs: u32) -> String {
    let mut log = String::new();
    let mut at = 1_000_000;
    for pair in 0..pairs {
        for n in 0..4 * (pairs - pair) {
            let size = 10 + n;
            for (pid, call) in [(1 + pair, "write"), (1001 + pair, "read")] {
                at += 9;
                let time = format!("{}.{:06}", at / 1_000_000, at % 1_000_000);
                let _ = writeln!(
                    log,
                    "{pid} {time} {call}(3<pipe:[{pair}]>, \"\"..., {size}) = {size} <0.000003>"
                );
            }
        }
    }
    log
}

#[test]
fn a_recording_of_many_channels_shows_the_busiest_and_folds_the_others() {
    let test = "a_recording_of_many_channels_shows_the_busiest_and_folds_the_others";
    let Some(mut browser) = browser::Browser::start(test) else { return };
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("log"), many_pipes(40)).unwrap();
    text(&observe(dir.path(), &["--import", "log", "--record", "rec"]));
    text(&observe(dir.path(), &["--recording", "rec", "--page", "rec.html"]));
    let page = browser.open(&dir.path().join("rec.html"), 390, "light");
    let mut number = |expression: &str| browser.eval(&page, expression).as_i64().unwrap();
    let height = "document.documentElement.scrollHeight";
    let folded = number(height);
    let seen = "[...document.querySelectorAll('.pair h3')].filter((e) => e.checkVisibility())";
    assert_eq!(number(&format!("{seen}.length")), 4);
    assert!(number(&format!("{seen}.every((e) => /^[0-3]:/.test(e.textContent)) ? 1 : 0")) == 1);
    number("document.querySelectorAll('details').forEach((d) => { d.open = true; }) ?? 0");
    assert_eq!(number(&format!("{seen}.length")), 24);
    assert_eq!(number("document.querySelectorAll('tbody tr').length"), 40);
    assert!(number(height) > 2 * folded, "{folded} px at first");
    assert!(number("document.documentElement.scrollWidth - innerWidth") <= 0);
    assert_eq!(browser.complaints(), [""; 0]);
}
