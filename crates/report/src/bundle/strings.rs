//! The strings in a text of JSON.

/// Replaces every string in `text`, keys included, by what `change` makes of it. Everything else stays byte for byte as
/// it is: the order of fields, the digits of numbers, and also what is not valid JSON, such as the rest of a line that a
/// full disk has cut off. A string that is cut off is changed, too.
pub(super) fn map(text: &str, mut change: impl FnMut(&str) -> String) -> String {
    let mut changed = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('"') {
        changed.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = end(rest);
        match serde_json::from_slice::<String>(&rest.as_bytes()[..end]) {
            Ok(string) => {
                let new = change(&string);
                if new == string {
                    changed.push_str(&rest[..end]);
                } else {
                    changed.push_str(&serde_json::Value::from(new).to_string());
                }
            }
            Err(_) => changed.push_str(&change(&rest[..end])),
        }
        rest = &rest[end..];
    }
    changed.push_str(rest);
    changed
}

/// The length of the string literal with which `text` begins, quotes included; up to the end of the line if it is not
/// closed.
fn end(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '\n' => return at,
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_strings_change() {
        let upper = |text: &str| map(text, str::to_uppercase);
        assert_eq!(upper(r#"{"a": [1.50, "b\"c", null]}"#), r#"{"A": [1.50, "B\"C", null]}"#);
        assert_eq!(upper("{\"a\":\"cut of\n{\"b\":1}\n"), "{\"A\":\"CUT OF\n{\"B\":1}\n");
        assert_eq!(upper(r#""\u0061\\""#), r#""A\\""#);
        // What stays keeps its escapes.
        let kept = r#"{"k":"\u00b5s\/"}"#;
        assert_eq!(map(kept, str::to_owned), kept);
    }
}
