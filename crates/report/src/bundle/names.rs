//! Whole words in texts, and the labels that replace them.

/// Names of one kind with their labels, such as `host-1`.
#[derive(Debug)]
pub(super) struct Names {
    kind: &'static str,
    /// The longest first, since a name may contain another; with its label, and whether it has been replaced.
    names: Vec<(String, String, bool)>,
}

impl Names {
    pub(super) fn new(kind: &'static str) -> Names {
        Names { kind, names: Vec::new() }
    }

    /// Adds a name, with the next label.
    pub(super) fn add(&mut self, name: &str) {
        if self.names.iter().any(|(known, ..)| known == name) {
            return;
        }
        let label = format!("{}-{}", self.kind, self.names.len() + 1);
        let at = self.names.partition_point(|(other, ..)| other.len() >= name.len());
        self.names.insert(at, (name.to_owned(), label, false));
    }

    /// Replaces the names where they are whole words.
    pub(super) fn replace(&mut self, text: &str) -> String {
        let mut shown = text.to_owned();
        for (name, label, used) in &mut self.names {
            if shown.contains(name.as_str()) {
                let replaced =
                    replace_word(&shown, name, label, |c| c.is_alphanumeric() || c == '_');
                *used |= replaced != shown;
                shown = replaced;
            }
        }
        shown
    }

    /// Number of names that have been replaced.
    pub(super) fn used(&self) -> usize {
        self.names.iter().filter(|(.., used)| *used).count()
    }
}

/// Replaces the folder `path`, and whatever is in it, by `label`, but no other folder whose name begins like it.
pub(super) fn replace_path(text: &str, path: &str, label: &str) -> String {
    if !text.contains(path) {
        return text.to_owned();
    }
    replace_word(text, path, label, |c| c.is_alphanumeric() || "_-.".contains(c))
}

/// Replaces `word` where no character for which `joins` is true comes before or after it.
fn replace_word(text: &str, word: &str, label: &str, joins: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut from = 0;
    for (at, _) in text.match_indices(word) {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        // An overlapping match may begin before the end of the last one that was replaced.
        if at < from || before.is_some_and(&joins) || after.is_some_and(&joins) {
            continue;
        }
        shown.push_str(&text[from..at]);
        shown.push_str(label);
        from = at + word.len();
    }
    shown.push_str(&text[from..]);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_comes_first_and_words_stay_whole() {
        let mut names = Names::new("host");
        ["node1", "node1.lab", "node12"].iter().for_each(|name| names.add(name));
        assert_eq!(
            names.replace("node1.lab, node1, node12, node123"),
            "host-2, host-1, host-3, node123"
        );
        assert_eq!(names.used(), 3);
        assert_eq!(replace_path("/h/al/x /h/al-b /h/al.", "/h/al", "~"), "~/x /h/al-b /h/al.");
    }
}
