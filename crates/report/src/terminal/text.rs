//! Text for a terminal and for Markdown.

/// Breaks text at spaces so that no line is wider than `columns`, unless a single word is.
pub(super) fn wrap(text: &str, columns: u16) -> String {
    wrap_indented(text, columns, 0, 0)
}

/// Breaks text at spaces so that no line ends beyond `columns`, unless a single word is too long.
/// The first line begins in column `first`; the caller has printed what precedes it. Each further
/// line begins with `further` spaces. Control characters are removed.
pub fn wrap_indented(text: &str, columns: u16, first: usize, further: usize) -> String {
    let (mut out, mut column) = (String::new(), first);
    for word in clean(text).split_whitespace() {
        let len = word.chars().count();
        if !out.is_empty() && column + 1 + len > usize::from(columns) {
            out.push('\n');
            out.push_str(&" ".repeat(further));
            column = further;
        } else if !out.is_empty() {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += len;
    }
    out
}

/// Removes control characters, so that a record cannot send escape sequences to the terminal.
pub(super) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Escapes text so that Markdown shows it literally.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in clean(text).chars() {
        match letter {
            '|' | '*' | '_' | '[' | ']' | '#' | '\\' => {
                out.push('\\');
                out.push(letter);
            }
            '<' => out.push_str("&lt;"),
            _ => out.push(letter),
        }
    }
    out
}

/// Cuts text to one line of `columns`, at a space if there is one.
pub(super) fn one_line(text: &str, columns: u16) -> String {
    let text = clean(text);
    let room = usize::from(columns);
    if text.chars().count() <= room {
        return text;
    }
    let cut: String = text.chars().take(room.saturating_sub(2)).collect();
    let end = cut.rfind(' ').unwrap_or(cut.len());
    format!("{} …", cut[..end].trim_end_matches([',', ';', ':']))
}
