//! Starter programs: a small server and client for the recommended mechanism, with deadlines, reconnection,
//! back-pressure and clean-up.

use std::io;
use std::path::{Path, PathBuf};

/// A language in which starter programs are available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// C11 with POSIX threads.
    C,
    /// Rust, standard library only.
    Rust,
    /// Python 3, standard library only.
    Python,
}

impl Language {
    /// All languages with their names.
    pub const ALL: [(&'static str, Language); 3] =
        [("c", Language::C), ("rust", Language::Rust), ("python", Language::Python)];
}

/// The reason why no starter programs were written.
#[derive(Debug, thiserror::Error)]
pub enum StarterError {
    /// There are no starter programs for the mechanism in this language.
    #[error("there are no starter programs for {mechanism} in this language; they are available for {}", .available.join(", "))]
    None {
        /// The mechanism's id.
        mechanism: String,
        /// Mechanisms with starter programs in this language.
        available: Vec<&'static str>,
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

struct Kind {
    mechanism: &'static str,
    family: &'static str,
    socket_type: &'static str,
    nodelay: bool,
}

const KINDS: &[Kind] = &[
    Kind { mechanism: "uds-stream", family: "AF_UNIX", socket_type: "SOCK_STREAM", nodelay: false },
    Kind {
        mechanism: "uds-seqpacket",
        family: "AF_UNIX",
        socket_type: "SOCK_SEQPACKET",
        nodelay: false,
    },
    Kind { mechanism: "tcp", family: "AF_INET", socket_type: "SOCK_STREAM", nodelay: false },
    Kind { mechanism: "tcp-nodelay", family: "AF_INET", socket_type: "SOCK_STREAM", nodelay: true },
];

const C: &[(&str, &str)] = &[
    ("channel.h", include_str!("../../starters/channel.h")),
    ("server.c", include_str!("../../starters/server.c")),
    ("client.c", include_str!("../../starters/client.c")),
];
const RUST: &[(&str, &str)] = &[
    ("channel.rs", include_str!("../../starters/channel.rs")),
    ("server.rs", include_str!("../../starters/server.rs")),
    ("client.rs", include_str!("../../starters/client.rs")),
];
const PYTHON: &[(&str, &str)] = &[
    ("channel.py", include_str!("../../starters/channel.py")),
    ("server.py", include_str!("../../starters/server.py")),
    ("client.py", include_str!("../../starters/client.py")),
];
const README: &str = include_str!("../../starters/README.md");

/// Mechanisms with starter programs in a language. Rust's standard library does not support SOCK_SEQPACKET, so
/// uds-seqpacket is missing there.
pub fn available(language: Language) -> Vec<&'static str> {
    let has = |kind: &&Kind| language != Language::Rust || kind.socket_type == "SOCK_STREAM";
    KINDS.iter().filter(has).map(|kind| kind.mechanism).collect()
}

/// Writes the programs and a README for messages of up to `largest` bytes (4096 if that is more) to a folder, which is
/// created if necessary; returns the files. The README names the mechanism `recommended`, which may differ from
/// `mechanism`.
///
/// # Errors
/// There are no starter programs for the mechanism in the language, or a file already exists or cannot be written.
pub fn write(
    mechanism: &str,
    recommended: &str,
    language: Language,
    largest: u64,
    dir: &Path,
) -> Result<Vec<PathBuf>, StarterError> {
    let kind = KINDS
        .iter()
        .find(|k| k.mechanism == mechanism && available(language).contains(&k.mechanism));
    let Some(kind) = kind else {
        return Err(StarterError::None {
            mechanism: mechanism.to_owned(),
            available: available(language),
        });
    };
    let unix = kind.family == "AF_UNIX";
    let (files, build, server, client) = match language {
        Language::C => (
            C,
            "cc -O2 -pthread -o server server.c && cc -O2 -o client client.c",
            "./server",
            "./client",
        ),
        Language::Rust => (
            RUST,
            "rustc -O --edition 2024 server.rs && rustc -O --edition 2024 client.rs",
            "./server",
            "./client",
        ),
        Language::Python => (PYTHON, "python3 --version", "python3 server.py", "python3 client.py"),
    };
    let largest = largest.max(4096).to_string();
    let flag = |yes: &'static str, no: &'static str| if kind.nodelay { yes } else { no };
    let why = if mechanism == recommended {
        format!("`crossway advise` recommended {mechanism}; these programs are a starting point.")
    } else {
        format!(
            "`crossway advise` recommended {recommended}, for which there are no starter programs in this \
             language.\nThese are for {mechanism}, the best admissible candidate that has them; they are a starting \
             point."
        )
    };
    let words = [
        ("@WHY@", why.as_str()),
        ("@MECHANISM@", mechanism),
        ("@FAMILY@", kind.family),
        ("@FAMILY_C@", kind.family),
        ("@TYPE@", kind.socket_type),
        ("@NODELAY_PY@", flag("True", "False")),
        ("@NODELAY_C@", flag("1", "0")),
        ("@NODELAY_RUST@", flag("socket.set_nodelay(true)?;", "")),
        ("@RUST_SOCKET@", if unix { "os::unix::net::UnixStream" } else { "net::TcpStream" }),
        ("@RUST_LISTENER@", if unix { "os::unix::net::UnixListener" } else { "net::TcpListener" }),
        ("@UNIX@", if unix { "true" } else { "false" }),
        ("@LARGEST@", &largest),
        ("@BUILD@", build),
        ("@SERVER@", server),
        ("@CLIENT@", client),
        ("@ADDRESS@", if unix { "/tmp/example.sock" } else { "127.0.0.1:7777" }),
    ];
    let unwritten = |path: &Path| {
        let path = path.to_owned();
        move |cause| StarterError::Unwritten { path, cause }
    };
    std::fs::create_dir_all(dir).map_err(unwritten(dir))?;
    let mut written = Vec::new();
    for (name, text) in files.iter().copied().chain([("README.md", README)]) {
        let path = dir.join(name);
        if path.exists() {
            return Err(StarterError::Exists { path });
        }
        let text = words.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
        std::fs::write(&path, text).map_err(unwritten(&path))?;
        written.push(path);
    }
    Ok(written)
}
