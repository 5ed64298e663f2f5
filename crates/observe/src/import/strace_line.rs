//! One line of an strace log. Contents of buffers, which a log may have, are skipped and never kept.

/// A line, as far as it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// The thread; `None` in a log of one thread without `-f`.
    pub(super) thread: Option<u32>,
    /// The time, nanoseconds since 1970.
    pub(super) at_ns: i64,
    /// What happened.
    pub(super) what: What<'a>,
}

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What<'a> {
    /// A call and everything after its opening parenthesis.
    Call {
        /// Its name.
        name: &'a str,
        /// Its arguments, result and time.
        rest: &'a str,
    },
    /// A call that had not returned when another thread's line was written.
    Unfinished {
        /// Its name.
        name: &'a str,
        /// Its arguments so far.
        rest: &'a str,
    },
    /// The rest of such a call.
    Resumed {
        /// Its name.
        name: &'a str,
        /// What follows.
        rest: &'a str,
    },
    /// A signal, or the end of a thread.
    Other,
}

/// Parses a line; `None` if it is not one of strace with `-ttt`.
pub(super) fn parse(line: &str) -> Option<Line<'_>> {
    let mut rest = line.trim();
    let mut thread = None;
    if let Some(after) = rest.strip_prefix("[pid ") {
        let (number, after) = after.split_once(']')?;
        thread = Some(number.trim().parse().ok()?);
        rest = after.trim_start();
    } else if let Some((number, after)) = rest.split_once(' ')
        && !number.contains('.')
        && let Ok(number) = number.parse()
    {
        thread = Some(number);
        rest = after.trim_start();
    }
    let (time, rest) = rest.split_once(' ')?;
    let at_ns = nanoseconds(time)?;
    let rest = rest.trim_start();
    let what = if rest.starts_with("+++") || rest.starts_with("---") {
        What::Other
    } else if let Some(after) = rest.strip_prefix("<... ") {
        let (name, rest) = after.split_once(" resumed>")?;
        What::Resumed { name, rest }
    } else {
        let (name, rest) = rest.split_once('(')?;
        let is_name =
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !is_name {
            return None;
        }
        match rest.strip_suffix("<unfinished ...>") {
            Some(rest) => What::Unfinished { name, rest },
            None => What::Call { name, rest },
        }
    };
    Some(Line { thread, at_ns, what })
}

/// Seconds with a fraction, as whole nanoseconds.
pub(super) fn nanoseconds(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.')?;
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let fraction: i64 = format!("{fraction:0<9}").parse().ok()?;
    whole.parse::<i64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction)
}

/// A finished call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finished<'a> {
    /// Its arguments, each as strace wrote it.
    pub(super) args: Vec<&'a str>,
    /// Its result; `None` if it did not return, as when its thread was killed.
    pub(super) result: Option<i64>,
    /// How long it took, nanoseconds; `None` if the log has no times (`-T`).
    pub(super) took_ns: Option<u64>,
}

/// Parses everything after the opening parenthesis of a call.
pub(super) fn finished(text: &str) -> Option<Finished<'_>> {
    let bytes = text.as_bytes();
    let (mut args, mut begin, mut depth, mut at) = (Vec::new(), 0, 0_u32, 0);
    let end = loop {
        match *bytes.get(at)? {
            b'"' => at = after_string(bytes, at)?,
            // After a number, what strace -y says about a descriptor.
            b'<' if at > 0 && (bytes[at - 1].is_ascii_digit() || bytes[at - 1] == b'D') => {
                at = after_annotation(bytes, at)?;
            }
            b'(' | b'[' | b'{' => {
                depth += 1;
                at += 1;
            }
            b')' if depth == 0 => break at,
            b')' | b']' | b'}' => {
                depth = depth.checked_sub(1)?;
                at += 1;
            }
            b',' if depth == 0 => {
                args.push(text.get(begin..at)?.trim());
                at += 1;
                begin = at;
            }
            _ => at += 1,
        }
    };
    args.push(text.get(begin..end)?.trim());
    let rest = text.get(end + 1..)?.trim_start().strip_prefix('=')?.trim();
    let (result, took_ns) = match rest.strip_suffix('>').and_then(|rest| rest.rsplit_once('<')) {
        Some((result, took)) => (result, nanoseconds(took).and_then(|ns| u64::try_from(ns).ok())),
        None => (rest, None),
    };
    let result = result.split_whitespace().next()?;
    // A new descriptor is followed by what it is.
    let number = result.split('<').next()?;
    let result = match number.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None => number.parse().ok(),
    };
    Some(Finished { args, result, took_ns })
}

/// The position after a string that begins at `at`.
fn after_string(bytes: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        match *bytes.get(at)? {
            b'\\' => at += 2,
            b'"' => return Some(at + 1),
            _ => at += 1,
        }
    }
}

/// The position after `<...>` that begins at `at`: a path, with a device in a second pair, or a kind with brackets. An
/// arrow in it is no end.
fn after_annotation(bytes: &[u8], at: usize) -> Option<usize> {
    let (mut at, mut depth) = (at, 0_u32);
    loop {
        match *bytes.get(at)? {
            b'"' => {
                at = after_string(bytes, at)?;
                continue;
            }
            b'<' => depth += 1,
            b'>' if bytes.get(at - 1) == Some(&b'-') => {}
            b'>' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
}

/// What strace says about the descriptor in an argument: `TCP:[...]` in `5<TCP:[...]>`.
pub(super) fn annotation(arg: &str) -> Option<&str> {
    let (number, rest) = arg.split_once('<')?;
    number.parse::<i64>().ok()?;
    rest.strip_suffix('>')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_all_kinds_are_told_apart() {
        let of = |text| parse(text).map(|line| (line.thread, line.at_ns, line.what));
        let call = What::Call { name: "close", rest: "3) = 0 <0.000001>" };
        assert_eq!(
            of("12 1.5 close(3) = 0 <0.000001>"),
            Some((Some(12), 1_500_000_000, call.clone()))
        );
        assert_eq!(
            of("[pid  12] 1.5 close(3) = 0 <0.000001>"),
            Some((Some(12), 1_500_000_000, call.clone()))
        );
        assert_eq!(of("1.5 close(3) = 0 <0.000001>"), Some((None, 1_500_000_000, call)));
        let unfinished = What::Unfinished { name: "read", rest: "5<pipe:[1]>, " };
        assert_eq!(
            of("7 2.0 read(5<pipe:[1]>, <unfinished ...>"),
            Some((Some(7), 2_000_000_000, unfinished))
        );
        let resumed = What::Resumed { name: "read", rest: "\"\", 9) = 9 <0.1>" };
        assert_eq!(
            of("7 2.0 <... read resumed>\"\", 9) = 9 <0.1>"),
            Some((Some(7), 2_000_000_000, resumed))
        );
        assert_eq!(of("7 2.0 +++ exited with 0 +++").unwrap().2, What::Other);
        for bad in
            ["", "7", "strace: Process 7 attached", "7 2 close(3)", "7 2.x close(3)", "7 2.0 ?"]
        {
            assert_eq!(of(bad), None, "{bad}");
        }
    }

    #[test]
    fn brackets_quotes_and_arrows_do_not_end_an_argument() {
        let text = r#"5<TCP:[1.2.3.4:5->[::1]:6]>, {a=[1, 2], b="x)\",<"}, 7</dev/pts/0<char 136:0>>, "(", 3) = 64 <0.000012>"#;
        let call = finished(text).unwrap();
        assert_eq!(call.args.len(), 5, "{call:?}");
        assert_eq!(annotation(call.args[0]), Some("TCP:[1.2.3.4:5->[::1]:6]"));
        assert_eq!(annotation(call.args[2]), Some("/dev/pts/0<char 136:0>"));
        assert_eq!((call.result, call.took_ns), (Some(64), Some(12_000)));
        let failed =
            finished("3, NULL) = -1 EAGAIN (Resource temporarily unavailable) <0.000001>").unwrap();
        assert_eq!(failed.result, Some(-1));
        assert_eq!(finished("3) = ?").unwrap().result, None);
        for cut in 0..text.len() {
            // Never a panic.
            let _ = text.get(..cut).map(finished);
        }
    }
}
