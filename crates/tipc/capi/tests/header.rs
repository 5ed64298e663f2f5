//! Tests that the header matches the library, and that C programs that use it work.

#[path = "../../../crossway/tests/built/mod.rs"]
mod built;
#[path = "header/killed_receiver.rs"]
mod killed_receiver;

use std::path::{Path, PathBuf};
use std::process::Command;

use crossway_tipc_client::LoneTipcd;

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns the C declaration of a parameter or function: its Rust type converted to C, with `name` where C requires it.
fn in_c(rust: &str, name: &str) -> String {
    let plain = match rust {
        "c_int" => "int",
        "i64" => "int64_t",
        "u32" => "uint32_t",
        "usize" => "size_t",
        "*const c_char" => "const char *",
        "*const c_void" => "const void *",
        "*mut c_void" => "void *",
        "*mut u32" => "uint32_t *",
        "*const CtipcSocket" => "const ctipc_socket *",
        "*mut CtipcSocket" => "ctipc_socket *",
        "*mut *mut CtipcSocket" => "ctipc_socket **",
        "*const CtipcAddress" => "const ctipc_address *",
        "*mut CtipcAddress" => "ctipc_address *",
        "*mut CtipcMessage" => "ctipc_message *",
        other => panic!("the header test cannot convert the type {other:?} to C"),
    };
    if plain.ends_with('*') { format!("{plain}{name}") } else { format!("{plain} {name}") }
}

/// The prototypes of all functions in the source, each with the first line of its documentation.
fn prototypes() -> String {
    let source = std::fs::read_to_string(here("src/ffi.rs")).unwrap();
    let mut out = String::new();
    for part in source.split("#[unsafe(no_mangle)]").collect::<Vec<_>>().windows(2) {
        let doc = part[0].rsplit("\n\n").next().unwrap();
        let said = doc.lines().find_map(|l| l.strip_prefix("/// ")).expect("documented");
        let signature = part[1].split('{').next().unwrap().replace('\n', " ");
        let (before, after) = signature.split_once('(').unwrap();
        let name = before.rsplit(' ').next().unwrap();
        let (arguments, result) = after.split_once(')').unwrap();
        let arguments: Vec<String> = arguments
            .split(',')
            .map(str::trim)
            .filter(|a| !a.is_empty())
            .map(|a| a.split_once(": ").unwrap())
            .map(|(name, kind)| in_c(kind, name))
            .collect();
        let arguments = if arguments.is_empty() { "void".to_owned() } else { arguments.join(", ") };
        let call = format!("{name}({arguments});");
        let line = match result.split_once("-> ") {
            Some((_, kind)) => in_c(kind.trim(), &call),
            None => format!("void {call}"),
        };
        out += &format!("/* {said} */\n{line}\n");
    }
    out
}

#[test]
fn the_header_follows_the_source() {
    let path = here("include/crossway_tipc.h");
    let header = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = header.split_once("/* PROTOTYPES */\n").expect("the mark");
    let (_, after) = rest.split_once("\n#ifdef __cplusplus").expect("the end");
    let wanted = format!("{before}/* PROTOTYPES */\n{}\n#ifdef __cplusplus{after}", prototypes());
    if std::env::var_os("CROSSWAY_WRITE").is_some() {
        std::fs::write(&path, &wanted).unwrap();
        return;
    }
    assert!(
        header == wanted,
        "the header is out of date; write it: CROSSWAY_WRITE=1 cargo test -p crossway-tipc-capi --test header"
    );
}

/// The library and the tipcd, as built in this workspace.
struct Built {
    target: PathBuf,
    dir: tempfile::TempDir,
}

impl Built {
    /// Builds both; `None` if one of the tools that the tests use is missing.
    fn new() -> Option<Self> {
        for tool in ["cc", "c++", "nm", "readelf"] {
            if let Err(error) = Command::new(tool).arg("--version").output() {
                eprintln!("SKIP the C interface: {tool}: {error}; install gcc, g++ and binutils");
                return None;
            }
        }
        let target = built::build(&["crossway-tipc-capi", "crossway-tipc-node"]);
        let dir = tempfile::tempdir().unwrap();
        // Named as `make install` does.
        let library = target.join("libcrossway_tipc.so");
        for name in ["libcrossway_tipc.so", SONAME] {
            std::os::unix::fs::symlink(&library, dir.path().join(name)).unwrap();
        }
        Some(Self { target, dir })
    }

    fn library(&self) -> PathBuf {
        self.target.join("libcrossway_tipc.so")
    }

    fn program(&self, compiler: &str, words: &[&str], source: &str) -> PathBuf {
        let program = self.dir.path().join(format!("program-{compiler}"));
        let compiled = Command::new(compiler)
            .args(["-Wall", "-Wextra", "-pedantic", "-Werror"])
            .args(words)
            .arg(here(source))
            .args(["-x", "none"])
            .arg(format!("-I{}", here("include").display()))
            .arg(format!("-L{}", self.dir.path().display()))
            .arg(format!("-Wl,-rpath,{}", self.dir.path().display()))
            .args(["-lcrossway_tipc", "-o"])
            .arg(&program)
            .status()
            .unwrap();
        assert!(compiled.success(), "{source} does not compile with {compiler} {words:?}");
        program
    }

    fn tipcd(&self, words: &[&str]) -> LoneTipcd {
        let mut command = Command::new(self.target.join("tipcd"));
        command.args(words);
        LoneTipcd::start(command, &self.dir.path().join("s")).unwrap()
    }
}

const SONAME: &str = "libcrossway_tipc.so.0";

/// Runs a tool on a file and returns its output, split at white space.
fn words_of(tool: &str, args: &[&str], file: &Path) -> Vec<String> {
    let out = Command::new(tool).args(args).arg(file).output().unwrap();
    assert!(out.status.success());
    String::from_utf8(out.stdout).unwrap().split_whitespace().map(str::to_owned).collect()
}

#[test]
fn the_shared_object_has_a_name_and_exports_the_header_and_nothing_else() {
    let Some(built) = Built::new() else { return };
    let dynamic = words_of("readelf", &["-d"], &built.library());
    assert!(dynamic.contains(&format!("[{SONAME}]")), "{dynamic:?}");
    let mut exported: Vec<_> = words_of("nm", &["-D", "--defined-only", "-P"], &built.library())
        .into_iter()
        .filter(|word| word.contains('_'))
        .collect();
    exported.sort_unstable();
    let mut named: Vec<_> = functions();
    named.sort_unstable();
    assert_eq!(exported, named);
    let program = built.program("cc", &["-std=c99"], "examples/echo.c");
    let needs = words_of("readelf", &["-d"], &program);
    assert!(needs.contains(&format!("[{SONAME}]")), "{needs:?}");
}

/// The names of all functions in the header.
fn functions() -> Vec<String> {
    let prototypes = prototypes();
    let calls = prototypes.lines().filter(|line| line.ends_with(");"));
    calls
        .map(|line| line.split_once('(').unwrap().0.rsplit([' ', '*']).next().unwrap().to_owned())
        .collect()
}

#[test]
fn every_function_does_in_c_and_in_cpp_what_the_header_says() {
    let source = std::fs::read_to_string(here("tests/every_function.c")).unwrap();
    for name in functions() {
        assert!(
            source.contains(&format!("{name}(")),
            "tests/every_function.c does not call {name}"
        );
    }
    let Some(built) = Built::new() else { return };
    for (compiler, words) in
        [("cc", &["-std=c99", "-D_POSIX_C_SOURCE=200809L"][..]), ("c++", &["-std=c++11", "-xc++"])]
    {
        let program = built.program(compiler, words, "tests/every_function.c");
        let tipcd = built.tipcd(&[]);
        let out = Command::new(&program).arg(tipcd.path()).output().unwrap();
        let errors = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{compiler}: {errors}");
        assert_eq!(out.stdout, b"all calls held\n");
    }
}

#[test]
fn a_process_and_its_child_send_on_one_socket_in_order_with_lanes_and_without() {
    let Some(built) = Built::new() else { return };
    let words = ["-std=c99", "-D_POSIX_C_SOURCE=200809L"];
    let program = built.program("cc", &words, "tests/shared_socket.c");
    for after in ["1", "0"] {
        let tipcd = built.tipcd(&["--lane-after", after]);
        let out = Command::new("timeout").arg("900").arg(&program).arg(tipcd.path()).output();
        let out = out.unwrap();
        let errors = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "--lane-after {after}: {errors}");
        assert_eq!(out.stdout, b"all came in order\n");
    }
}

#[test]
fn the_example_runs_on_a_tipcd() {
    let Some(built) = Built::new() else { return };
    let program = built.program("cc", &["-std=c99"], "examples/echo.c");
    let tipcd = built.tipcd(&[]);
    let out = Command::new(&program).arg(tipcd.path()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let errors = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{errors}");
    assert_eq!(said, "hello\nnobody: No route to host\n");
    let absent = built.dir.path().join("absent");
    let out = Command::new(&program).arg(&absent).output().unwrap();
    assert!(!out.status.success());
    let errors = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        errors.contains("no tipcd at") && errors.contains("crossway tipcd --socket"),
        "{errors}"
    );
}

#[test]
fn processes_that_share_a_socket_take_each_message_once_whoever_is_killed() {
    let Some(built) = Built::new() else { return };
    let program = built.program(
        "cc",
        &["-std=c99", "-D_POSIX_C_SOURCE=200809L"],
        "tests/shared_by_processes.c",
    );
    let mut command = Command::new(built.target.join("tipcd"));
    command.args(["--lane-after", "1"]);
    let tipcd = LoneTipcd::start(command, &built.dir.path().join("s")).unwrap();
    let out = Command::new(&program).arg(tipcd.path()).output().unwrap();
    let errors = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{errors} {:?}", out.status);
}

#[test]
fn a_go_program_uses_the_library_by_cgo() {
    for (tool, word) in [("go", "version"), ("pkg-config", "--version")] {
        if let Err(error) = Command::new(tool).arg(word).output() {
            return eprintln!("SKIP Go: {tool}: {error}; install Go 1.21 or later and pkg-config");
        }
    }
    let Some(built) = Built::new() else { return };
    let dir = built.dir.path();
    let module = format!(
        "Name: crossway-tipc\nDescription: TIPC\nVersion: 0\nCflags: -I{}\nLibs: -L{} -lcrossway_tipc\n",
        here("include").display(),
        dir.display()
    );
    std::fs::write(dir.join("crossway-tipc.pc"), module).unwrap();
    let program = dir.join("echo");
    let out = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg("./echo")
        .current_dir(here("examples/go"))
        .env("PKG_CONFIG_PATH", dir)
        // Go's build cache does not consider what pkg-config prints; without this, a second run is linked with the first run's directory.
        .env("CGO_LDFLAGS", format!("-L{}", dir.display()))
        .env("CGO_ENABLED", "1")
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let tipcd = built.tipcd(&["--clients-per-process", "64"]);
    let out = Command::new("timeout")
        .arg("900")
        .arg(&program)
        .arg(tipcd.path())
        .env("LD_LIBRARY_PATH", dir)
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(out.stdout, b"20 clients had their echoes\n");
}
