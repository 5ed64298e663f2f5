//! The duties of a machine's init process: mounting file systems, loading modules, setting up a raw serial line and
//! reaping orphaned processes.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::mount::MountFlags;
use rustix::process::WaitOptions;
use rustix::system::RebootCommand;
use rustix::termios::OptionalActions;

use crate::OsError;

/// Mounts a file system of type `kind` on the directory `on`. `options` has the format that mount(8) accepts after
/// `-o`.
///
/// # Errors
/// The kernel refuses the mount.
pub fn mount(kind: &str, on: &Path, options: &str) -> Result<(), OsError> {
    mount_named(kind, kind, on, options)
}

/// As [`mount`], of a file system with a name, such as the tag of a share.
///
/// # Errors
/// The kernel refuses the mount.
pub fn mount_named(name: &str, kind: &str, on: &Path, options: &str) -> Result<(), OsError> {
    let failed = |e| OsError::new("mount", format!("{kind} on {}", on.display()), e);
    let data = CString::new(options).map_err(|_| failed(rustix::io::Errno::INVAL))?;
    rustix::mount::mount(name, on, kind, MountFlags::empty(), data.as_c_str()).map_err(failed)
}

/// Makes `new` the root directory of this mount namespace and of its processes, and the working directory of this
/// process. The old root appears at `old`, a directory inside `new`.
///
/// # Errors
/// The kernel refuses the change.
pub fn change_root(new: &Path, old: &Path) -> Result<(), OsError> {
    let failed = |e| OsError::new("pivot_root", new.display(), e);
    rustix::process::pivot_root(new, old).map_err(failed)?;
    rustix::process::chdir("/").map_err(|e| OsError::new("chdir", "/", e))
}

/// Makes the file system mounted on `new` the root of this process in place of the kernel's first file system, which
/// [`change_root`] cannot replace.
///
/// # Errors
/// The kernel refuses the change.
pub fn leave_first_root(new: &Path) -> Result<(), OsError> {
    let failed = |call, e| OsError::new(call, new.display(), e);
    rustix::process::chdir(new).map_err(|e| failed("chdir", e))?;
    rustix::mount::mount_move(".", "/").map_err(|e| failed("mount", e))?;
    rustix::process::chroot(".").map_err(|e| failed("chroot", e))?;
    rustix::process::chdir("/").map_err(|e| failed("chdir", e))
}

/// Loads a kernel module from the content of its file, with parameters. Succeeds if it is already
/// loaded.
///
/// # Errors
/// The kernel refuses to load it.
pub fn load_module_image(name: &str, image: &[u8], parameters: &str) -> Result<(), OsError> {
    match rustix::system::init_module(image, &c_text(name, parameters)?) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(e) => Err(OsError::new("init_module", name, e)),
    }
}

/// Loads a kernel module from its file, with parameters. Succeeds if it is already loaded.
///
/// # Errors
/// The file cannot be read, or the kernel refuses to load it.
pub fn load_module(file: &Path, parameters: &str) -> Result<(), OsError> {
    let module = File::open(file).map_err(|e| OsError::new("open", file.display(), e))?;
    let parameters = c_text(&file.display().to_string(), parameters)?;
    match rustix::system::finit_module(&module, &parameters, 0) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(e) => Err(OsError::new("finit_module", file.display(), e)),
    }
}

fn c_text(module: &str, parameters: &str) -> Result<CString, OsError> {
    CString::new(parameters)
        .map_err(|_| OsError::new("init_module", module, rustix::io::Errno::INVAL))
}

/// Sets the host name of this machine.
///
/// # Errors
/// The kernel refuses the name.
pub fn set_host_name(name: &str) -> Result<(), OsError> {
    rustix::system::sethostname(name.as_bytes()).map_err(|e| OsError::new("sethostname", name, e))
}

/// The release of the running kernel, e.g. `6.1.0`.
pub fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Sets a terminal line to raw mode: no echo, signals, flow control or translation of bytes.
///
/// # Errors
/// `line` is not a terminal.
pub fn make_line_raw(line: impl AsFd) -> Result<(), OsError> {
    let failed = |e| OsError::new("tcsetattr", "the line", e);
    let mut settings = rustix::termios::tcgetattr(&line).map_err(failed)?;
    settings.make_raw();
    rustix::termios::tcsetattr(&line, OptionalActions::Flush, &settings).map_err(failed)
}

/// Waits for any child, including orphans that this process adopted; returns its process id, or `None` if there are
/// no children.
pub fn reap_any() -> Option<u32> {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, _))) => return Some(pid.as_raw_nonzero().get() as u32),
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// Flushes file systems and switches this machine off. Returns only if the kernel refuses: the process has no
/// privilege, or is not in this machine's first PID namespace.
pub fn power_off() -> OsError {
    rustix::fs::sync();
    match rustix::system::reboot(RebootCommand::PowerOff) {
        Ok(()) => OsError::new(
            "reboot",
            "power off",
            std::io::Error::other("the machine is still running"),
        ),
        Err(e) => OsError::new("reboot", "power off", e),
    }
}
