//! The version of the running kernel, and which boot of it this is.

/// The kernel's release, e.g. `6.1.0-18-amd64`.
pub fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// The boot id: the same for everybody on this kernel, and another one after each boot. Empty without /proc.
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Whether the kernel's version is at least `major.minor`; `false` if its release has no such numbers.
pub fn is_at_least(major: u32, minor: u32) -> bool {
    reaches(&release(), major, minor)
}

fn reaches(release: &str, major: u32, minor: u32) -> bool {
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map_while(|n| n.parse::<u32>().ok());
    matches!((numbers.next(), numbers.next()), (Some(a), Some(b)) if (a, b) >= (major, minor))
}

#[cfg(test)]
mod tests {
    #[test]
    fn versions_are_compared_as_numbers() {
        for (release, reached) in [
            ("6.1.0-18-amd64", true),
            ("5.11.0", true),
            ("5.4.0", false),
            ("4.19", false),
            ("x", false),
        ] {
            assert_eq!(super::reaches(release, 5, 11), reached, "{release}");
        }
    }

    #[test]
    fn the_release_is_what_proc_says() {
        let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        assert_eq!(super::release(), text.trim());
    }
}
