//! The examples in the help texts of all commands.

use std::collections::BTreeMap;

use clap::Command;

/// The examples, each below its command's name without `crossway`. Every command without
/// subcommands has at least two. A command with subcommands shows the first example of each of its
/// first two subcommands, unless it has examples of its own. A test parses them all.
const EXAMPLES: &str = include_str!("examples.txt");

/// The name in [`EXAMPLES`] of the program itself.
const ROOT: &str = "crossway";

/// Adds the examples to the help of the program and of each visible subcommand.
pub(crate) fn with_examples(root: Command) -> Command {
    add(root, "", &by_command())
}

type ByCommand = BTreeMap<&'static str, Vec<&'static str>>;

fn by_command() -> ByCommand {
    let mut all = ByCommand::new();
    let mut examples = all.entry("").or_default();
    for line in EXAMPLES.lines() {
        match line.strip_prefix("    ") {
            Some(example) => examples.push(example),
            None => examples = all.entry(if line == ROOT { "" } else { line }).or_default(),
        }
    }
    all
}

fn add(command: Command, path: &str, all: &ByCommand) -> Command {
    let examples = examples(&command, path, all);
    let command = match &examples[..] {
        [] => command,
        _ => command.after_help(format!("Examples:\n  {}", examples.join("\n  "))),
    };
    let names: Vec<String> =
        command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| {
        let below = below(path, &name);
        command.mut_subcommand(name, |sub| add(sub, &below, all))
    })
}

/// Returns the command's own examples, or those of its first subcommands.
fn examples(command: &Command, path: &str, all: &ByCommand) -> Vec<&'static str> {
    if let Some(own) = all.get(path) {
        return own.clone();
    }
    let visible = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    let of_each: Vec<Vec<&str>> =
        visible.map(|sub| examples(sub, &below(path, sub.get_name()), all)).collect();
    match &of_each[..] {
        [only] => only.clone(),
        all => all.iter().filter_map(|examples| examples.first().copied()).take(2).collect(),
    }
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path} {name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Collects the path of the program and of each visible command, with the text at the end of its help.
    fn visible(command: &Command, path: &str, into: &mut Vec<(String, String)>) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        into.push((path.to_owned(), help));
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            visible(sub, &below(path, sub.get_name()), into);
        }
    }

    #[test]
    fn every_command_has_two_examples_and_the_parser_takes_them_all() {
        let mut commands = Vec::new();
        visible(&crate::command(), "", &mut commands);
        assert!(commands.len() > 60, "{commands:?}");
        for (path, help) in commands {
            let examples: Vec<&str> =
                help.lines().filter_map(|line| line.strip_prefix("  ")).collect();
            assert!(
                examples.len() >= 2,
                "crossway {path} has {} examples in its help",
                examples.len()
            );
            for example in examples {
                assert!(
                    example.contains(&format!("crossway {}", path.split(' ').next().unwrap())),
                    "{path}: {example}"
                );
                let own = &example[example.find("crossway").unwrap()..];
                let own = own.split(" > ").next().unwrap();
                let words = own.split_whitespace().map(|word| word.trim_matches('\''));
                if let Err(error) = crate::command().try_get_matches_from(words) {
                    assert!(!error.use_stderr(), "{example}: {error}");
                }
            }
        }
    }

    #[test]
    fn no_example_is_of_a_command_that_is_gone() {
        for path in by_command().into_keys() {
            let mut at = &crate::command();
            for name in path.split_whitespace() {
                at = at.find_subcommand(name).unwrap_or_else(|| panic!("crossway {path}"));
            }
        }
    }
}
