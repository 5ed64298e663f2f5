//! Starter programs: a small server and client for the recommended mechanism, with deadlines, reconnection,
//! back-pressure and clean-up; for a fan-out, a publisher and a subscriber. The two may be written in different languages.

mod language;

use std::io;
use std::path::{Path, PathBuf};

use crossway_sys::whole_file;
pub use language::{Language, Languages};

use super::Question;
use super::question::Pattern;

/// The reason why no starter programs were written.
#[derive(Debug, thiserror::Error)]
pub enum StarterError {
    /// There are no starter programs for the mechanism in these languages.
    #[error("there are no starter programs for {mechanism} in {languages}: {why}")]
    None {
        /// The mechanism's id.
        mechanism: String,
        /// The languages that were asked for.
        languages: Languages,
        /// What is missing, and for which mechanisms there are programs.
        why: String,
    },
    /// A file could not be written.
    #[error("cannot write {}: {cause}; name another folder with --code-dir", path.display())]
    Unwritten {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The file already exists.
    #[error("{} already exists and is not overwritten: name another folder with --code-dir", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
}

/// What a mechanism's programs are made of.
struct Kind {
    mechanism: &'static str,
    /// The parts of the templates that apply.
    parts: &'static [&'static str],
    family: &'static str,
    socket_type: &'static str,
    protocol: Option<&'static str>,
}

const fn socket(
    mechanism: &'static str,
    parts: &'static [&'static str],
    family: &'static str,
    socket_type: &'static str,
) -> Kind {
    Kind { mechanism, parts, family, socket_type, protocol: None }
}

const fn plain(mechanism: &'static str, parts: &'static [&'static str]) -> Kind {
    socket(mechanism, parts, "", "")
}

const KINDS: &[Kind] = &[
    plain("pipe", &["pipe"]),
    plain("fifo", &["fifo"]),
    socket("uds-stream", &["stream", "unix", "unixstream"], "AF_UNIX", "SOCK_STREAM"),
    socket("uds-dgram", &["dgram", "unix", "unixdgram"], "AF_UNIX", "SOCK_DGRAM"),
    socket("uds-seqpacket", &["seqpacket", "unix"], "AF_UNIX", "SOCK_SEQPACKET"),
    socket("tcp", &["stream", "inet", "inetstream"], "AF_INET", "SOCK_STREAM"),
    socket("tcp-nodelay", &["stream", "inet", "inetstream", "nodelay"], "AF_INET", "SOCK_STREAM"),
    Kind {
        protocol: Some("IPPROTO_MPTCP"),
        ..socket("mptcp", &["stream", "inet"], "AF_INET", "SOCK_STREAM")
    },
    socket("udp", &["dgram", "inet", "inetdgram"], "AF_INET", "SOCK_DGRAM"),
    socket("tipc-kernel-stream", &["stream", "tipc"], "AF_TIPC", "SOCK_STREAM"),
    socket("tipc-kernel-seqpacket", &["seqpacket", "tipc"], "AF_TIPC", "SOCK_SEQPACKET"),
    socket("tipc-node-stream", &["stream", "tipc", "node"], "AF_TIPC", "SOCK_STREAM"),
    socket("tipc-node-seqpacket", &["seqpacket", "tipc", "node"], "AF_TIPC", "SOCK_SEQPACKET"),
    socket("tipc-kernel-rdm", &["dgram", "tipc"], "AF_TIPC", "SOCK_RDM"),
    socket("tipc-kernel-dgram", &["dgram", "tipc"], "AF_TIPC", "SOCK_DGRAM"),
    socket("tipc-node-rdm", &["dgram", "tipc", "node"], "AF_TIPC", "SOCK_RDM"),
    socket("tipc-node-dgram", &["dgram", "tipc", "node"], "AF_TIPC", "SOCK_DGRAM"),
    plain("posix-mq", &["mq"]),
    plain("sysv-mq", &["sysv"]),
    plain("shm-futex", &["library"]),
    plain("shm-spin", &["library"]),
    plain("shm-eventfd", &["library"]),
];

impl Kind {
    fn has(&self, part: &str) -> bool {
        self.parts.contains(&part)
    }

    fn is_in(&self, language: Language) -> bool {
        match language {
            Language::C => true,
            // Its standard library has no message queues.
            Language::Python => !["library", "mq", "sysv"].iter().any(|p| self.has(p)),
            // What the standard library has: neither SOCK_SEQPACKET nor AF_TIPC nor a deadline on pipes.
            Language::Rust => {
                let kinds = ["unixstream", "inetstream", "unixdgram", "inetdgram"];
                kinds.iter().any(|p| self.has(p))
            }
        }
    }
}

/// The name and the text of a file.
type Template = (&'static str, &'static str);

macro_rules! templates {
    ($($name:literal),*) => {
        &[$(($name, include_str!(concat!("../starters/", $name)))),*]
    };
}

const C: &[Template] =
    templates!["channel.h", "server.c", "client.c", "publisher.c", "subscriber.c"];
const RUST: &[Template] =
    templates!["channel.rs", "server.rs", "client.rs", "publisher.rs", "subscriber.rs"];
const PYTHON: &[Template] =
    templates!["channel.py", "server.py", "client.py", "publisher.py", "subscriber.py"];
const README: (&str, &str) = ("README.md", include_str!("../starters/README.md"));

fn templates(language: Language) -> &'static [Template] {
    match language {
        Language::C => C,
        Language::Rust => RUST,
        Language::Python => PYTHON,
    }
}

/// Mechanisms with starter programs in these languages for this pattern.
pub fn available(languages: Languages, pattern: Pattern) -> Vec<&'static str> {
    // The client over a pipe starts its server, so that there is one of each.
    let meets = |kind: &Kind| pattern != Pattern::FanOut || !kind.has("pipe");
    let has =
        |kind: &&Kind| kind.is_in(languages.client) && kind.is_in(languages.server) && meets(kind);
    KINDS.iter().filter(has).map(|kind| kind.mechanism).collect()
}

/// Refuses a question for which there cannot be starter programs, whatever is chosen. `candidates` are the mechanisms
/// that can be.
///
/// # Errors
/// None of the candidates has starter programs in these languages.
pub fn check(
    question: &Question,
    languages: Languages,
    candidates: &[&str],
) -> Result<(), StarterError> {
    let available = available(languages, question.pattern);
    if candidates.iter().any(|id| available.contains(id)) {
        return Ok(());
    }
    Err(none(&candidates.join(", "), languages, &available))
}

/// Checks that the programs can be written to this folder, before minutes are spent on measuring.
///
/// # Errors
/// Programs are there already, or the folder cannot be written.
pub fn check_folder(dir: &Path) -> Result<(), StarterError> {
    let readme = dir.join(README.0);
    if readme.exists() {
        return Err(StarterError::Exists { path: readme });
    }
    let is_new = !dir.exists();
    let tried = std::fs::create_dir_all(dir).and_then(|()| whole_file::check(&readme));
    if is_new {
        let _ = std::fs::remove_dir(dir);
    }
    tried.map_err(|cause| StarterError::Unwritten { path: dir.to_owned(), cause })
}

fn none(mechanism: &str, languages: Languages, available: &[&str]) -> StarterError {
    let why = match available {
        [] => "there are none in these languages".to_owned(),
        some => format!("they exist for {}", some.join(", ")),
    };
    StarterError::None { mechanism: mechanism.to_owned(), languages, why }
}

/// Keeps the lines that apply: those between `@if WORD...` and `@end` only if one of the words is among `parts`.
fn select(text: &str, parts: &[&str]) -> String {
    let mut kept = vec![true];
    let mut out = String::with_capacity(text.len());
    let mut blank = 0;
    for line in text.lines() {
        if let Some(words) = line.strip_prefix("@if ") {
            let applies = words.split(' ').any(|word| parts.contains(&word));
            kept.push(applies && kept.last() == Some(&true));
        } else if line == "@end" {
            kept.pop();
        } else if kept.last() == Some(&true) {
            blank = if line.is_empty() { blank + 1 } else { 0 };
            if blank <= 2 {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

/// How a program is built and started. On a `tipcd`, the program's calls for AF_TIPC are answered by a library.
fn commands(language: Language, program: &str, kind: &Kind) -> (String, String) {
    let library =
        if kind.has("library") { " $(pkg-config --cflags --libs crossway-channel)" } else { "" };
    let (build, start) = match language {
        Language::C => {
            (format!("cc -O2 -pthread -o {program} {program}.c{library}"), format!("./{program}"))
        }
        Language::Rust => (format!("rustc -O --edition 2024 {program}.rs"), format!("./{program}")),
        Language::Python => (String::new(), format!("python3 {program}.py")),
    };
    (build, if kind.has("node") { format!("crossway tipc run {start}") } else { start })
}

/// Writes the programs and a README for messages of up to `largest` bytes (4096 if that is more) to a folder, which is
/// created if necessary; returns the files. For a fan-out they are a publisher and a subscriber, otherwise a server and a
/// client. The README names the mechanism `recommended`, which may differ from `mechanism`.
///
/// # Errors
/// There are no starter programs for the mechanism in the languages, or a file already exists or cannot be written.
pub fn write(
    mechanism: &str,
    recommended: &str,
    languages: Languages,
    pattern: Pattern,
    largest: u64,
    dir: &Path,
) -> Result<Vec<PathBuf>, StarterError> {
    let Languages { client, server } = languages;
    let available = available(languages, pattern);
    let kind = KINDS.iter().find(|k| k.mechanism == mechanism && available.contains(&mechanism));
    let kind = kind.ok_or_else(|| none(mechanism, languages, &available))?;
    let (part, sends, receives) = match pattern {
        Pattern::FanOut => ("fan-out", "publisher", "subscriber"),
        _ => ("answers", "server", "client"),
    };
    let parts = [kind.parts, &[part]].concat();
    let largest = largest.max(4096).to_string();
    let why = if mechanism == recommended {
        format!("`crossway advise` recommended {mechanism}; these programs are a starting point.")
    } else {
        format!(
            "`crossway advise` recommended {recommended}, for which there are no starter programs in {languages}.\n\
             These are for {mechanism}, the best admissible candidate that has them; they are a starting point."
        )
    };
    let (unix, dgram, pipe) = (kind.has("unix"), kind.has("dgram"), kind.has("pipe"));
    let (build_server, start_server) = commands(server, sends, kind);
    let (build_client, start_client) = commands(client, receives, kind);
    let build: Vec<_> =
        [build_server, build_client].into_iter().filter(|line| !line.is_empty()).collect();
    let address = match kind.parts {
        ["pipe"] => format!("'{start_server}'"),
        ["library"] => "example".to_owned(),
        ["mq"] => "/example".to_owned(),
        ["sysv"] => "0x5150cafe".to_owned(),
        _ if unix => "example.sock".to_owned(),
        _ if kind.has("tipc") => "18888:17".to_owned(),
        ["fifo"] => "example.fifo".to_owned(),
        _ => "127.0.0.1:7777".to_owned(),
    };
    let mut run: Vec<String> = build;
    if kind.has("node") {
        run.insert(0, "crossway tipcd &".to_owned());
    }
    if !pipe {
        run.push(format!("{start_server} {address} &"));
    }
    run.push(format!("{start_client} {address} 100000"));
    let run: Vec<String> = run.iter().map(|line| format!("    {line}")).collect();
    let server_use =
        if pipe { "the client starts it".to_owned() } else { format!("{start_server} ADDRESS") };
    let leaves_address = ["unix", "fifo", "mq", "sysv"].iter().any(|part| kind.has(part));
    let death = match (server, leaves_address) {
        (Language::Rust, true) => {
            format!(
                " However a {sends} in Rust ends, it leaves its address; the next one removes it."
            )
        }
        (_, true) => {
            let takes = if kind.has("sysv") { "uses" } else { "removes" };
            format!(" A {sends} that is killed leaves its address behind; the next one {takes} it.")
        }
        _ => String::new(),
    };
    let both = match kind.has("sysv") {
        true => {
            " If both ends are killed within 2 s, the two queues between them stay until the next server removes them; `ipcs -q` \
             lists them."
        }
        false => "",
    };
    let death = format!("{death}{both}");
    let python = kind.protocol.map_or("0".to_owned(), |name| format!("socket.{name}"));
    let words = [
        ("@WHY@", why.as_str()),
        ("@MECHANISM@", mechanism),
        ("@TRANSPORT@", mechanism),
        ("@FAMILY@", kind.family),
        ("@TYPE@", kind.socket_type),
        ("@PROTOCOL@", kind.protocol.unwrap_or("0")),
        ("@PROTOCOL_PY@", &python),
        ("@SILENT@", if dgram { " && silent++ < 30" } else { "" }),
        ("@NO_ADDRESS@", if pipe { "the client" } else { "" }),
        ("@SERVER_USE@", &server_use),
        ("@ANY_PY@", if unix { "\"\"" } else { "(\"\", 0)" }),
        (
            "@RUST_SOCKET@",
            match (unix, dgram) {
                (true, true) => "os::unix::net::UnixDatagram",
                (true, false) => "os::unix::net::UnixStream",
                (false, true) => "net::UdpSocket",
                (false, false) => "net::TcpStream",
            },
        ),
        ("@RUST_LISTENER@", if unix { "os::unix::net::UnixListener" } else { "net::TcpListener" }),
        ("@RUST_CONNECT@", if unix { "connect_addr" } else { "connect" }),
        ("@RUST_REF@", if unix { "&" } else { "" }),
        ("@LARGEST@", &largest),
        ("@RUN@", &run.join("\n")),
        ("@DEATH@", &death),
    ];
    let files = |language: Language, program: &'static str| {
        let name = format!("{program}.{}", language.ending());
        let wanted = move |file: &str| file.starts_with("channel") || file == name;
        templates(language).iter().copied().filter(move |(file, _)| wanted(file))
    };
    let mut all: Vec<_> = files(server, sends).chain(files(client, receives)).collect();
    all.sort_unstable();
    all.dedup();
    all.push(README);
    let unwritten = |path: &Path| {
        let path = path.to_owned();
        move |cause| StarterError::Unwritten { path, cause }
    };
    if let Some(path) = all.iter().map(|(name, _)| dir.join(name)).find(|path| path.exists()) {
        return Err(StarterError::Exists { path });
    }
    std::fs::create_dir_all(dir).map_err(unwritten(dir))?;
    let mut written = Vec::new();
    for (name, text) in all {
        let path = dir.join(name);
        let text =
            words.iter().fold(select(text, &parts), |text, (from, to)| text.replace(from, to));
        std::fs::write(&path, text).map_err(unwritten(&path))?;
        written.push(path);
    }
    Ok(written)
}
