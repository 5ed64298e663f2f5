//! Finds the name that was probably meant by a name that does not exist.

/// Returns the most similar of the names that exist; `None` if none differs in so few letters that
/// it may have been meant: one, and one more for each four letters. Two letters in the wrong order
/// count as one.
pub fn similar<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = 1 + name.chars().count() / 4;
    let candidates = known.into_iter().map(|one| (strsim::osa_distance(name, one), one));
    candidates.filter(|(distance, _)| *distance <= most).min_by_key(|(d, _)| *d).map(|(_, one)| one)
}

/// [`similar`] as a question that ends in a space, to be put before the next step; empty without a
/// similar name.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    similar(name, known).map_or(String::new(), |meant| format!("did you mean {meant}? "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_slip_is_recognised_and_others_are_not() {
        let known = ["pipe", "fifo", "tcp", "uds-stream", "shm-futex", "local"];
        for (written, meant) in [
            ("pip", Some("pipe")),
            ("tpc", Some("tcp")),
            ("uds_stream", Some("uds-stream")),
            ("unix-stream", Some("uds-stream")),
            ("shm-fotex", Some("shm-futex")),
            ("carrier-pigeon", None),
            ("x", None),
        ] {
            assert_eq!(similar(written, known), meant, "{written}");
        }
        assert_eq!(did_you_mean("pip", known), "did you mean pipe? ");
        assert_eq!(did_you_mean("carrier-pigeon", known), "");
    }
}
