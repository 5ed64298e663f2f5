//! Version 1 of Crossway's protocol for contenders written in Rust: a single file that needs only the standard library.
//!
//! A contender implements [`Contender`] and calls `serve::<Mine>()` in `main`. docs/CONTENDERS.md defines what it must
//! do. The build command should copy this file into the directory of the program's own source, which declares `mod
//! crossway_contender;`.
//!
//! SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

const PROTOCOL: u64 = 1;
/// Number of messages by which the numbering runs ahead of the sending. If a number were written into a message right
/// before the message is sent, a copy that loads wider units than the number would have to wait for the store, and the
/// measurement would include that wait.
const LEAD: usize = 8;

/// The result of a call; the error is a sentence for the user.
pub type Result<T> = std::result::Result<T, String>;
/// An offer: names and values that the listening end passes to the connecting end before the channel is open.
pub type Words = BTreeMap<String, String>;

/// The role of this process in a trial: one end of a channel.
#[derive(Clone, Debug)]
#[allow(dead_code)]
pub struct Role {
    /// Name of the role: `sender`, `receiver`, `client` or `server`.
    pub part: String,
    /// Maximum length of a message in bytes.
    pub size_bytes: usize,
    /// Whether to wait by spinning instead of sleeping.
    pub spins: bool,
    /// The address to listen on.
    pub bind: String,
    /// A private directory, which is also the working directory; it is removed after the trial.
    pub dir: PathBuf,
    /// A prefix for names in /dev/shm; all objects with this prefix are removed after the trial.
    pub shm_prefix: String,
    /// Capacity of the channel in bytes, if the plan requests one.
    pub capacity_bytes: Option<u64>,
    /// Size of the socket buffers in bytes, if the plan requests one.
    pub socket_buffer_bytes: Option<u64>,
}

/// A program to be measured; a value of the type is this process's end of a channel.
pub trait Contender: Sized {
    /// Returns the library's name and version.
    fn library() -> String;
    /// Listens, and writes the offer to `words`.
    fn listen(role: &Role, words: &mut Words) -> Result<Self>;
    /// Waits for the other end to connect. By default, does nothing.
    fn accept(&mut self) -> Result<()> {
        Ok(())
    }
    /// Connects to the offer of the listening end.
    fn connect(role: &Role, words: &Words) -> Result<Self>;
    /// Sends one whole message.
    fn send(&mut self, message: &[u8]) -> Result<()>;
    /// Receives one message and passes it to `take`. If the channel is a byte stream, receives exactly `len` bytes.
    fn receive(&mut self, len: usize, take: impl FnOnce(&[u8])) -> Result<()>;
    /// Closes the channel.
    fn close(self) -> Result<()>;
}

static ANSWERS: OnceLock<Mutex<File>> = OnceLock::new();

/// Executes the orders of Crossway and exits after the last one. Standard output is redirected to standard error, so
/// that output of a library is not mistaken for an answer.
pub fn serve<C: Contender>() -> ! {
    let answers = std::io::stdout().as_fd().try_clone_to_owned().map(File::from);
    let Ok(answers) = answers else { std::process::exit(2) };
    let _ = ANSWERS.set(Mutex::new(answers));
    // SAFETY: both are descriptors of this process, and no memory is touched.
    unsafe { dup2(2, 1) };
    match orders::<C>() {
        Ok(code) => std::process::exit(code),
        Err(reason) => fail(&reason),
    }
}

/// Ends the program with a reason that is shown to the user.
pub fn fail(reason: &str) -> ! {
    say(&format!("{{\"answer\":\"failed\",\"reason\":{}}}", quoted(reason)));
    std::process::exit(1)
}

fn say(line: &str) {
    if let Some(answers) = ANSWERS.get() {
        let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = answers.write_all(format!("{line}\n").as_bytes());
    }
}

fn orders<C: Contender>() -> Result<i32> {
    let library = quoted(&C::library());
    say(&format!(
        "{{\"answer\":\"hello\",\"protocol\":{PROTOCOL},\"library\":{library},\"checksum\":\"sum64\"}}"
    ));
    let mut role = None;
    let mut channel: Option<C> = None;
    let mut window = Window::default();
    let mut input = BufReader::new(std::io::stdin().lock());
    let mut line = String::new();
    loop {
        line.clear();
        // The process that gave orders has ended.
        if input.read_line(&mut line).map_err(|e| e.to_string())? == 0 {
            return Ok(1);
        }
        let order = Json::read(&line)?;
        let early = || "an order came before 'begin'".to_owned();
        match order.text("order").as_str() {
            "begin" => {
                if order.number("protocol") != Some(PROTOCOL) {
                    return Err(format!("this helper speaks version {PROTOCOL} of the protocol"));
                }
                let fresh = Role::of(&order);
                let mut words = Words::new();
                if order.flag("listens") {
                    channel = Some(C::listen(&fresh, &mut words)?);
                }
                role = Some(fresh);
                let words: Vec<String> = words
                    .iter()
                    .map(|(name, text)| format!("{}:{}", quoted(name), quoted(text)))
                    .collect();
                say(&format!("{{\"answer\":\"offer\",\"words\":{{{}}}}}", words.join(",")));
            }
            "connect" => {
                channel = Some(C::connect(role.as_ref().ok_or_else(early)?, &order.words())?);
                say("{\"answer\":\"opened\"}");
            }
            "accept" => {
                channel.as_mut().ok_or_else(early)?.accept()?;
                say("{\"answer\":\"opened\"}");
            }
            "verify" => verify(channel.as_mut().ok_or_else(early)?, &order)?,
            "prepare" => {
                window.prepare(role.as_ref().ok_or_else(early)?, &order)?;
                say("{\"answer\":\"ready\"}");
            }
            "go" => {
                window.go(role.as_ref().ok_or_else(early)?, channel.as_mut().ok_or_else(early)?)?;
                let Window { start_ns, end_ns, sent, received, out_of_order, .. } = window;
                say(&format!(
                    "{{\"answer\":\"done\",\"start_ns\":{start_ns},\"end_ns\":{end_ns},\"sent\":{sent},\"received\":{received},\
                     \"out_of_order\":{out_of_order}}}"
                ));
            }
            "result" => say(&window.result(role.as_ref().ok_or_else(early)?)),
            "close" => {
                channel.take().ok_or_else(early)?.close()?;
                say("{\"answer\":\"closed\"}");
                return Ok(0);
            }
            other => return Err(format!("unknown order '{other}'")),
        }
    }
}

impl Role {
    fn of(order: &Json) -> Role {
        Role {
            part: order.text("part"),
            size_bytes: order.number("size_bytes").unwrap_or(0) as usize,
            spins: order.text("wait") == "spin",
            bind: order.text("bind"),
            dir: order.text("dir").into(),
            shm_prefix: order.text("shm_prefix"),
            capacity_bytes: order.number("capacity_bytes"),
            socket_buffer_bytes: order.number("socket_buffer_bytes"),
        }
    }
}

fn verify<C: Contender>(channel: &mut C, order: &Json) -> Result<()> {
    let path = order.text("path");
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .map_err(|e| format!("opening {path}: {e}"))?;
    let sends = order.flag("sends");
    let (mut at, mut lengths) = (0, Vec::new());
    for len in order.numbers("lengths") {
        let mut got = len as usize;
        if sends {
            let mut message = vec![0; got];
            file.read_exact_at(&mut message, at).map_err(|e| format!("reading {path}: {e}"))?;
            channel.send(&message)?;
        } else {
            let mut written = Ok(());
            channel.receive(got, |message| {
                got = message.len();
                written = file.write_all_at(message, at);
            })?;
            written.map_err(|e| format!("writing {path}: {e}"))?;
        }
        at += got as u64;
        lengths.push(got.to_string());
    }
    say(&format!("{{\"answer\":\"verified\",\"lengths\":[{}]}}", lengths.join(",")));
    Ok(())
}

#[derive(Default)]
struct Window {
    messages: u64,
    batch: u64,
    first: u64,
    payload: Vec<u8>,
    count: usize,
    stride: usize,
    start_ns: u64,
    end_ns: u64,
    sent: u64,
    received: u64,
    out_of_order: u64,
    checksum: u64,
    samples: Vec<u64>,
}

impl Window {
    fn prepare(&mut self, role: &Role, order: &Json) -> Result<()> {
        self.messages = order.number("messages").unwrap_or(0);
        self.batch = order.number("batch").unwrap_or(1).max(1);
        self.first = order.number("first").unwrap_or(0);
        (self.sent, self.received, self.out_of_order, self.checksum) = (0, 0, 0, 0);
        self.samples = Vec::new();
        if let Some(payload @ Json::Object(_)) = order.get("payload") {
            let path = payload.text("path");
            self.count = payload.number("count").unwrap_or(0) as usize;
            self.stride = payload.number("stride").unwrap_or(0) as usize;
            self.payload =
                fs::read(&path).map_err(|e| format!("opening the payload {path}: {e}"))?;
            if self.payload.len() < self.count * self.stride || self.count == 0 {
                return Err("the payload is shorter than promised".to_owned());
            }
        }
        if role.part == "client" {
            // Touched now, so that no page fault occurs during the measurement.
            self.samples = vec![1; (self.messages / self.batch) as usize];
            self.samples.clear();
        }
        Ok(())
    }

    fn go<C: Contender>(&mut self, role: &Role, channel: &mut C) -> Result<()> {
        let mut payload = std::mem::take(&mut self.payload);
        let (count, stride) = (self.count.max(1), self.stride);
        let mut cursor =
            Cursor { size: role.size_bytes, stride, count, at: 0, ahead: 0, number: self.first };
        if !payload.is_empty() {
            (0..LEAD.min(count / 2)).for_each(|_| cursor.number_next(&mut payload));
        }
        let mut next = 0;
        self.start_ns = now_ns();
        match role.part.as_str() {
            "sender" => {
                for _ in 0..self.messages {
                    channel.send(cursor.next(&mut payload))?;
                }
                self.sent = self.messages;
            }
            "receiver" => {
                for _ in 0..self.messages {
                    self.take(channel, role.size_bytes, &mut next)?;
                }
            }
            "client" => {
                let mut last = self.start_ns;
                for _ in 0..self.messages / self.batch {
                    for _ in 0..self.batch {
                        channel.send(cursor.next(&mut payload))?;
                        self.take(channel, role.size_bytes, &mut next)?;
                    }
                    let now = now_ns();
                    self.samples.push(now - last);
                    last = now;
                }
                self.sent = self.messages;
            }
            _ => {
                for _ in 0..self.messages {
                    self.take(channel, role.size_bytes, &mut next)?;
                    channel.send(cursor.next(&mut payload))?;
                }
                self.sent = self.messages;
            }
        }
        self.end_ns = now_ns();
        self.payload = payload;
        Ok(())
    }

    /// Receives one message, reads it, and records whether its number follows the previous one.
    #[inline(always)]
    fn take<C: Contender>(&mut self, channel: &mut C, size: usize, next: &mut u64) -> Result<()> {
        let mut got = 0;
        channel.receive(size, |message| {
            got = message.len();
            self.checksum = self.checksum.wrapping_add(sum64(message));
            if let Some(number) = message.first_chunk::<8>() {
                let number = u64::from_le_bytes(*number);
                self.out_of_order += u64::from(number != *next && self.received != 0);
                *next = number.wrapping_add(1);
            }
        })?;
        if got != size {
            return Err(format!(
                "received {got} bytes instead of {size}: a message was cut or joined"
            ));
        }
        self.received += 1;
        Ok(())
    }

    fn result(&mut self, role: &Role) -> String {
        let mut text = "{\"answer\":\"result\"".to_owned();
        if role.part != "sender" {
            let _ = write!(text, ",\"checksum\":\"{:x}\"", self.checksum);
        }
        // Four digits of each sample are sufficient and keep the line short.
        for sample in &mut self.samples {
            let mut step = 1;
            while *sample / step >= 10_000 {
                step *= 10;
            }
            *sample = *sample / step * step;
        }
        self.samples.sort_unstable();
        let same: Vec<String> = self
            .samples
            .chunk_by(|a, b| a == b)
            .map(|same| format!("[{},{}]", same[0], same.len()))
            .collect();
        let _ = write!(text, ",\"histogram\":[{}]}}", same.join(","));
        text
    }
}

/// Cycles through the prepared messages.
struct Cursor {
    size: usize,
    stride: usize,
    count: usize,
    at: usize,
    ahead: usize,
    number: u64,
}

impl Cursor {
    #[inline(always)]
    fn number_next(&mut self, payload: &mut [u8]) {
        if self.size >= 8 {
            let begin = self.ahead * self.stride;
            payload[begin..begin + 8].copy_from_slice(&self.number.to_le_bytes());
        }
        self.number = self.number.wrapping_add(1);
        self.ahead = if self.ahead + 1 == self.count { 0 } else { self.ahead + 1 };
    }

    #[inline(always)]
    fn next<'a>(&mut self, payload: &'a mut [u8]) -> &'a [u8] {
        self.number_next(payload);
        let begin = self.at * self.stride;
        self.at = if self.at + 1 == self.count { 0 } else { self.at + 1 };
        &payload[begin..begin + self.size]
    }
}

/// Returns the sum of the message's 64-bit little-endian words, the last one padded with zeros. It reads every byte.
#[inline(always)]
fn sum64(message: &[u8]) -> u64 {
    let (words, rest) = message.as_chunks::<8>();
    let total = words.iter().fold(0u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    total.wrapping_add(u64::from_le_bytes(last))
}

#[repr(C)]
struct Timespec {
    seconds: std::ffi::c_long,
    nanoseconds: std::ffi::c_long,
}

unsafe extern "C" {
    fn clock_gettime(clock: std::ffi::c_int, time: *mut Timespec) -> std::ffi::c_int;
    fn dup2(from: std::ffi::c_int, to: std::ffi::c_int) -> std::ffi::c_int;
}

/// Returns the time of CLOCK_MONOTONIC in nanoseconds. The standard library provides only differences of times.
fn now_ns() -> u64 {
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: the structure is the C library's and lives for the length of the call.
    unsafe { clock_gettime(1, &raw mut time) };
    time.seconds as u64 * 1_000_000_000 + time.nanoseconds as u64
}

fn quoted(text: &str) -> String {
    let mut out = "\"".to_owned();
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if u32::from(c) < 0x20 => drop(write!(out, "\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The subset of JSON that orders use.
enum Json {
    Object(BTreeMap<String, Json>),
    List(Vec<Json>),
    Text(String),
    Number(u64),
    Other(bool),
}

impl Json {
    fn read(text: &str) -> Result<Json> {
        let mut rest = text.trim();
        let value = Json::value(&mut rest);
        value.ok_or_else(|| format!("an order is not JSON: {}", text.trim()))
    }

    fn value(rest: &mut &str) -> Option<Json> {
        *rest = rest.trim_start();
        match rest.chars().next()? {
            '{' => {
                let mut all = BTreeMap::new();
                Json::each(rest, '}', |rest| {
                    let Json::Text(key) = Json::value(rest)? else { return None };
                    *rest = rest.trim_start().strip_prefix(':')?;
                    all.insert(key, Json::value(rest)?);
                    Some(())
                })?;
                Some(Json::Object(all))
            }
            '[' => {
                let mut all = Vec::new();
                Json::each(rest, ']', |rest| {
                    all.push(Json::value(rest)?);
                    Some(())
                })?;
                Some(Json::List(all))
            }
            '"' => Json::string(rest).map(Json::Text),
            '0'..='9' => {
                let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                let number = rest[..end].parse().ok()?;
                *rest = &rest[end..];
                Some(Json::Number(number))
            }
            _ => {
                let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
                let word = &rest[..end];
                *rest = &rest[end..];
                matches!(word, "true" | "false" | "null").then_some(Json::Other(word == "true"))
            }
        }
    }

    /// Skips an opening bracket and parses the elements, separated by commas, up to the bracket `close`. `None` if
    /// `one` fails.
    fn each(
        rest: &mut &str,
        close: char,
        mut one: impl FnMut(&mut &str) -> Option<()>,
    ) -> Option<()> {
        *rest = rest[1..].trim_start();
        while !rest.starts_with(close) {
            one(rest)?;
            *rest = rest.trim_start();
            *rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
        }
        *rest = &rest[1..];
        Some(())
    }

    fn string(rest: &mut &str) -> Option<String> {
        let mut text = String::new();
        let mut chars = rest[1..].char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    *rest = &rest[at + 2..];
                    return Some(text);
                }
                '\\' => match chars.next()?.1 {
                    'n' => text.push('\n'),
                    't' => text.push('\t'),
                    'r' => text.push('\r'),
                    'u' => {
                        let digits: String =
                            (0..4).filter_map(|_| chars.next()).map(|(_, c)| c).collect();
                        text.push(char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?);
                    }
                    other => text.push(other),
                },
                c => text.push(c),
            }
        }
        None
    }

    fn get(&self, key: &str) -> Option<&Json> {
        let Json::Object(all) = self else { return None };
        all.get(key)
    }

    fn text(&self, key: &str) -> String {
        let Some(Json::Text(text)) = self.get(key) else { return String::new() };
        text.clone()
    }

    fn number(&self, key: &str) -> Option<u64> {
        let Some(Json::Number(number)) = self.get(key) else { return None };
        Some(*number)
    }

    fn numbers(&self, key: &str) -> Vec<u64> {
        let Some(Json::List(all)) = self.get(key) else { return Vec::new() };
        all.iter()
            .filter_map(|one| if let Json::Number(number) = one { Some(*number) } else { None })
            .collect()
    }

    fn flag(&self, key: &str) -> bool {
        matches!(self.get(key), Some(Json::Other(true)))
    }

    fn words(&self) -> Words {
        let Some(Json::Object(all)) = self.get("words") else { return Words::new() };
        all.keys()
            .map(|name| {
                (name.clone(), self.get("words").map(|words| words.text(name)).unwrap_or_default())
            })
            .collect()
    }
}
