//! Shell-style patterns: `*` matches any text, `?` any one character; `|` separates alternatives.

/// Whether one of the alternatives matches the whole text.
pub fn matches_whole(pattern: &str, text: &str) -> bool {
    pattern.split('|').any(|one| matches_one(one.as_bytes(), text.as_bytes()))
}

/// Whether one of the alternatives matches any part of the text.
pub fn matches_within(pattern: &str, text: &str) -> bool {
    pattern.split('|').any(|one| matches_one(format!("*{one}*").as_bytes(), text.as_bytes()))
}

/// Greedy matching with a single backtracking point: takes linear time in practice, never exponential.
fn matches_one(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, t));
                p += 1;
            }
            Some(&c) if c == b'?' || c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match retry {
                Some((after_star, from)) => {
                    p = after_star;
                    t = from + 1;
                    retry = Some((after_star, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_marks_and_alternatives() {
        for (pattern, text, whole) in [
            ("uds-*", "uds-stream", true),
            ("uds-*", "my-uds-stream", false),
            ("*-m?", "posix-mq", true),
            ("pipe|tcp", "tcp", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(matches_whole(pattern, text), whole, "{pattern} {text}");
        }
        assert!(matches_within("pipe/*64", "basic/pipe/throughput/64/block"));
        assert!(!matches_within("udp", "basic/pipe"));
    }
}
