//! The version of the running kernel.

/// The kernel's release, e.g. `6.1.0-18-amd64`.
pub fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_release_is_what_proc_says() {
        let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        assert_eq!(super::release(), text.trim());
    }
}
