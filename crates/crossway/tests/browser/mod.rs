//! Headless Chromium, controlled over its debugging pipe: JSON messages, each followed by a zero byte.

// Each test program uses only a part of it.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Time limit of every wait. Nothing here takes this long unless something hangs.
const WATCHDOG: Duration = Duration::from_secs(300);

/// A browser, and the events that it sent.
pub(crate) struct Browser {
    child: Child,
    to: Option<ChildStdin>,
    from: Receiver<Value>,
    next_id: u64,
    /// Events of all pages, in the order of arrival.
    pub(crate) events: Vec<Value>,
    _profile: tempfile::TempDir,
}

/// A page in the browser.
pub(crate) struct Page {
    session: String,
}

impl Browser {
    /// Starts Chromium; returns `None` and prints why if it is not installed.
    pub(crate) fn start(test: &str) -> Option<Browser> {
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let found = names.into_iter().find(|name| crossway_sys::program::find(name).is_some());
        let Some(program) = found else {
            eprintln!("SKIP {test}: no Chromium on the PATH; apt install chromium");
            return None;
        };
        let profile = tempfile::tempdir().expect("a directory for the profile");
        // The shell duplicates our two pipes to where Chromium expects its debugging pipe: descriptors 3 and 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh", program])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-sync"])
            .args(["--disable-component-update", "--disable-default-apps"])
            .arg("--remote-debugging-pipe")
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh starts");
        let to = child.stdin.take();
        let out = child.stdout.take().expect("it was piped");
        let (sender, from) = channel();
        std::thread::spawn(move || {
            let mut out = BufReader::new(out);
            let mut message = Vec::new();
            while out.read_until(0, &mut message).is_ok_and(|n| n > 0) {
                message.pop();
                if let Ok(value) = serde_json::from_slice(&message)
                    && sender.send(value).is_err()
                {
                    break;
                }
                message.clear();
            }
        });
        Some(Browser { child, to, from, next_id: 0, events: Vec::new(), _profile: profile })
    }

    fn call(&mut self, session: Option<&str>, method: &str, parameters: Value) -> Value {
        self.next_id += 1;
        let id = self.next_id;
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = session {
            message["sessionId"] = json!(session);
        }
        let to = self.to.as_mut().expect("open until dropped");
        write!(to, "{message}\0").expect("Chromium reads its pipe");
        to.flush().expect("Chromium reads its pipe");
        let deadline = Instant::now() + WATCHDOG;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.from.recv_timeout(left) {
                Ok(answer) if answer["id"] == json!(id) => {
                    assert!(answer.get("error").is_none(), "{method}: {answer}");
                    return answer["result"].clone();
                }
                Ok(event) => self.events.push(event),
                Err(RecvTimeoutError::Timeout) => panic!("{method}: no answer in {WATCHDOG:?}"),
                Err(RecvTimeoutError::Disconnected) => panic!("{method}: Chromium ended"),
            }
        }
    }

    /// Opens a file in a window of this width with this colour scheme, and waits until its script reports that it is
    /// ready.
    pub(crate) fn open(&mut self, file: &Path, width: u32, scheme: &str) -> Page {
        let target = self.call(None, "Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = self.call(None, "Target.attachToTarget", attach);
        let session = attached["sessionId"].as_str().expect("a session").to_owned();
        let page = Page { session };
        for domain in ["Runtime", "Log", "Page", "Network"] {
            self.on(&page, &format!("{domain}.enable"), json!({}));
        }
        let narrow = width < 500;
        self.on(
            &page,
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": narrow }),
        );
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.on(&page, "Emulation.setEmulatedMedia", json!({ "features": features }));
        let url = format!("file://{}", file.display());
        self.on(&page, "Page.navigate", json!({ "url": url }));
        self.wait_for(&page, "document.documentElement?.dataset.ready === 'true'");
        page
    }

    /// Calls a method for one page.
    pub(crate) fn on(&mut self, page: &Page, method: &str, parameters: Value) -> Value {
        let session = page.session.clone();
        self.call(Some(&session), method, parameters)
    }

    /// Returns the value of an expression on the page.
    pub(crate) fn eval(&mut self, page: &Page, expression: &str) -> Value {
        let asked =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.on(page, "Runtime.evaluate", asked);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub(crate) fn wait_for(&mut self, page: &Page, expression: &str) {
        let deadline = Instant::now() + WATCHDOG;
        while self.eval(page, expression) != json!(true) {
            assert!(Instant::now() < deadline, "never true: {expression}; {:?}", self.complaints());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Presses and releases a key on whatever has the focus.
    pub(crate) fn press(&mut self, page: &Page, key: &str, code: u32) {
        let text = if key == " " { json!(" ") } else { Value::Null };
        let mut down = json!({ "type": "keyDown", "key": key, "windowsVirtualKeyCode": code });
        if !text.is_null() {
            down["text"] = text;
        }
        self.on(page, "Input.dispatchKeyEvent", down);
        let up = json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code });
        self.on(page, "Input.dispatchKeyEvent", up);
    }

    /// Returns exceptions, and the errors and warnings of the console and of the browser itself.
    pub(crate) fn complaints(&self) -> Vec<String> {
        self.events
            .iter()
            .filter(|e| match e["method"].as_str() {
                Some("Runtime.exceptionThrown") => true,
                Some("Runtime.consoleAPICalled") => ["error", "warning", "assert"]
                    .contains(&e["params"]["type"].as_str().unwrap_or("")),
                Some("Log.entryAdded") => ["error", "warning"]
                    .contains(&e["params"]["entry"]["level"].as_str().unwrap_or("")),
                _ => false,
            })
            .map(Value::to_string)
            .collect()
    }

    /// Returns the URLs that pages requested, except `file:`, `data:` and `blob:`.
    pub(crate) fn requests_outside(&self) -> Vec<String> {
        self.events
            .iter()
            .filter(|e| e["method"] == "Network.requestWillBeSent")
            .filter_map(|e| e["params"]["request"]["url"].as_str().map(str::to_owned))
            .filter(|url| !["file:", "data:", "blob:"].iter().any(|own| url.starts_with(own)))
            .collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // If it is asked to close, it ends its own children; the profile can be removed only after that.
        if let Some(mut to) = self.to.take() {
            let _ = write!(to, "{{\"id\":0,\"method\":\"Browser.close\"}}\0");
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
