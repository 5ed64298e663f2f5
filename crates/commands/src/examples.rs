//! The examples in the help texts of all commands.

use clap::Command;

/// Examples by command. Every command without subcommands has at least two. A command with subcommands shows the first
/// example of each of its first two subcommands, unless it has examples of its own. A test parses them all.
const EXAMPLES: &[(&str, &[&str])] = &[
    ("", &["crossway measure", "crossway advise --size 64 --p99-us 50 --time 60s"]),
    ("measure", &["crossway measure", "crossway measure paced -f 'shm-*' --trials 7 --name main"]),
    (
        "rerun",
        &[
            "crossway rerun latest:12",
            "crossway rerun out/RUN:basic/pipe/ping-pong/64/block/other-core",
        ],
    ),
    ("list", &["crossway list", "crossway list tcp shm-futex", "crossway list --ready --json"]),
    ("doctor", &["crossway doctor", "crossway doctor --missing"]),
    ("contender list", &["crossway contender list", "crossway contender list --json"]),
    ("contender build", &["crossway contender build", "crossway contender build zeromq-ipc"]),
    ("contender test", &["crossway contender test", "crossway contender test ./my-queue.toml"]),
    (
        "contender new",
        &["crossway contender new my-queue", "crossway contender new my-queue --lang python"],
    ),
    ("env", &["crossway env", "crossway env --json"]),
    ("limits", &["crossway limits", "crossway limits --pair 0-1 --sizes 64,4KiB"]),
    (
        "observe",
        &[
            "crossway observe redis-server",
            "crossway observe --all --watch=2",
            "crossway observe redis-server --record redis.rec --time 10",
            "crossway observe --recording redis.rec --csv events.csv",
            "crossway observe --recording redis.rec --page redis.html",
        ],
    ),
    (
        "net up",
        &[
            "crossway net up --rate 100mbit --name lab",
            "crossway net up --hosts a,b,c --delay 1ms --loss 1%",
        ],
    ),
    ("net down", &["crossway net down lab", "crossway net down --all"]),
    ("net list", &["crossway net list", "crossway net list --json"]),
    ("net exec", &["crossway net exec lab/a -- ping -c 3 10.0.0.2", "crossway net exec a -- bash"]),
    ("guest up", &["crossway guest up", "crossway guest up g1 --kernel 6.12 --net lab/a"]),
    ("guest fetch", &["crossway guest fetch 6.12", "crossway guest fetch 6.1 6.12-rt"]),
    (
        "guest exec",
        &["crossway guest exec g -- tipc node get address", "crossway guest exec g -- bash"],
    ),
    (
        "guest run",
        &[
            "crossway guest run -- uname -r",
            "crossway guest run --kernel 6.12 --cpus 2 -- crossway list --ready",
        ],
    ),
    ("guest list", &["crossway guest list", "crossway guest list --json"]),
    ("guest down", &["crossway guest down g", "crossway guest down --all"]),
    ("agent", &["ssh host crossway agent", "crossway agent --help"]),
    ("tipcd", &["crossway tipcd udp:10.0.0.1", "crossway tipcd eth:eth0 --netid 4711"]),
    ("tipc node list", &["crossway tipc node list", "crossway tipc -j node list"]),
    ("tipc node get", &["crossway tipc node get address", "crossway tipc node get netid"]),
    (
        "tipc node set",
        &["crossway tipc node set key file cluster.key", "crossway tipc node set key rekeying 60"],
    ),
    ("tipc node flush", &["crossway tipc node flush key", "crossway tipc -j node flush key"]),
    (
        "tipc node statistics",
        &["crossway tipc node statistics", "crossway tipc -j node statistics"],
    ),
    ("tipc bearer list", &["crossway tipc bearer list", "crossway tipc bearer list --details"]),
    (
        "tipc bearer enable",
        &[
            "crossway tipc bearer enable media eth device eth0",
            "crossway tipc bearer enable udp:10.0.0.1 --tolerance 500",
        ],
    ),
    (
        "tipc bearer disable",
        &[
            "crossway tipc bearer disable media eth device eth0",
            "crossway tipc bearer disable udp0",
        ],
    ),
    (
        "tipc bearer add",
        &[
            "crossway tipc bearer add media udp name udp0 remoteip 10.0.0.2",
            "crossway tipc bearer add udp0 --remoteip 10.0.0.2",
        ],
    ),
    (
        "tipc bearer remove",
        &[
            "crossway tipc bearer remove media udp name udp0 remoteip 10.0.0.2",
            "crossway tipc bearer remove udp0 --remoteip 10.0.0.2",
        ],
    ),
    (
        "tipc bearer set",
        &[
            "crossway tipc bearer set tolerance 500 media eth device eth0",
            "crossway tipc bearer set udp0 --priority 12",
        ],
    ),
    (
        "tipc bearer get",
        &[
            "crossway tipc bearer get tolerance media eth device eth0",
            "crossway tipc bearer get udp0",
        ],
    ),
    ("tipc link list", &["crossway tipc link list", "crossway tipc -j link list"]),
    (
        "tipc link statistics",
        &[
            "crossway tipc link statistics",
            "crossway tipc link statistics show link broadcast-link",
        ],
    ),
    (
        "tipc link statistics show",
        &["crossway tipc link statistics show", "crossway tipc link statistics show link LINK"],
    ),
    (
        "tipc link statistics reset",
        &["crossway tipc link statistics reset", "crossway tipc link statistics reset link LINK"],
    ),
    (
        "tipc link get",
        &["crossway tipc link get tolerance link LINK", "crossway tipc link get broadcast"],
    ),
    (
        "tipc link set",
        &[
            "crossway tipc link set tolerance 500 link LINK",
            "crossway tipc link set broadcast REPLICAST",
        ],
    ),
    (
        "tipc link set-broadcast",
        &[
            "crossway tipc link set-broadcast --method replicast",
            "crossway tipc link set-broadcast --method autoselect --ratio 25",
        ],
    ),
    (
        "tipc link monitor summary",
        &["crossway tipc link monitor summary", "crossway tipc -j link monitor summary"],
    ),
    (
        "tipc link monitor list",
        &[
            "crossway tipc link monitor list",
            "crossway tipc link monitor list media eth device eth0",
        ],
    ),
    (
        "tipc link monitor get",
        &[
            "crossway tipc link monitor get threshold",
            "crossway tipc -j link monitor get threshold",
        ],
    ),
    (
        "tipc link monitor get threshold",
        &[
            "crossway tipc link monitor get threshold",
            "crossway tipc -j link monitor get threshold",
        ],
    ),
    (
        "tipc link monitor set",
        &[
            "crossway tipc link monitor set threshold 32",
            "crossway tipc link monitor set threshold 0",
        ],
    ),
    (
        "tipc link monitor set threshold",
        &[
            "crossway tipc link monitor set threshold 32",
            "crossway tipc link monitor set threshold 0",
        ],
    ),
    ("tipc media list", &["crossway tipc media list", "crossway tipc -j media list"]),
    (
        "tipc media get",
        &[
            "crossway tipc media get tolerance media eth",
            "crossway tipc media get window media udp",
        ],
    ),
    (
        "tipc media set",
        &[
            "crossway tipc bearer set tolerance 500 media eth device eth0",
            "crossway tipc bearer set udp0 --window 100",
        ],
    ),
    (
        "tipc nametable show",
        &["crossway tipc nametable show", "crossway tipc nametable show --type 4711"],
    ),
    ("tipc socket list", &["crossway tipc socket list", "crossway tipc socket list --statistics"]),
    ("tipc peer list", &["crossway tipc peer list", "crossway tipc peer list --details"]),
    (
        "tipc peer remove",
        &["crossway tipc peer remove address 1001002", "crossway tipc peer remove 1001002"],
    ),
    (
        "tipc wait",
        &["crossway tipc wait --peers 2", "crossway tipc wait --service 4711:1 --timeout 10"],
    ),
    ("tipc top", &["crossway tipc top", "crossway tipc top --interval 5 -n 3"]),
    (
        "tipc trace",
        &["crossway tipc trace frames.pcap --seconds 10", "crossway tipc trace - --count 100"],
    ),
    (
        "tipc run",
        &["crossway tipc run -- ./program argument", "crossway tipc run --force -- ./program"],
    ),
    (
        "advise",
        &[
            "crossway advise camera",
            "crossway advise --size 200 --clients 4 --in-flight 8 --p99-us 2000",
            "crossway advise --size 64 --p99-us 50 --require pollable --time 60s",
        ],
    ),
    (
        "profile",
        &[
            "crossway profile pipe",
            "crossway profile tcp tipc-node-stream --size 64KiB",
            "crossway profile latest:12",
        ],
    ),
    ("faults", &["crossway faults pipe uds-stream", "crossway faults --save out/latest"]),
    (
        "linx node",
        &[
            "crossway linx node",
            "crossway linx node --transport shm --name a",
            "crossway linx node --name b --cluster 4711",
        ],
    ),
    ("linx list", &["crossway linx list", "crossway linx list --json"]),
    ("linx hunt", &["crossway linx hunt server", "crossway linx hunt a/b/server --timeout 5"]),
    (
        "linx trace",
        &["crossway linx trace signals.pcap --seconds 10", "crossway linx trace - --payload 0"],
    ),
    ("linx bench", &["crossway linx bench", "crossway linx bench round-trip burst --size 64"]),
    (
        "linx send",
        &["crossway linx send server hello", "crossway linx send a/server hello --answers 1"],
    ),
    (
        "channel listen",
        &[
            "crossway channel listen camera/left",
            "crossway channel listen camera/left --hosts names.txt --key our.key",
            "crossway channel listen camera/left --echo --take-over",
        ],
    ),
    (
        "channel send",
        &[
            "crossway channel send camera/left --answers",
            "crossway channel send camera/left --tipc auto --plain",
        ],
    ),
    (
        "channel check",
        &[
            "crossway channel check camera/left",
            "crossway channel check camera/left --seconds 10 --size 4096 --json",
        ],
    ),
    (
        "channel profile",
        &["crossway channel profile latest", "crossway channel profile latest -o costs.json"],
    ),
    (
        "run",
        &[
            "crossway run -- redis-server --port 7000",
            "crossway run --explain -- redis-cli -p 7000",
            "crossway run --cpu-budget 100% -- redis-cli -p 7000",
            "crossway run --via tipc -- ./server",
        ],
    ),
    ("channel key", &["crossway channel key", "crossway channel key our.key"]),
    ("channel top", &["crossway channel top", "crossway channel top --once --json"]),
    (
        "channel switch",
        &[
            "crossway channel switch camera/left shm-futex",
            "crossway channel switch camera/left uds-seqpacket",
        ],
    ),
    ("report", &["crossway report latest", "crossway report main --markdown"]),
    (
        "compare",
        &["crossway compare main", "crossway compare main latest -f pipe --fail-on slower:5%"],
    ),
    ("rank", &["crossway rank latest", "crossway rank latest -f ping-pong --sort cpu"]),
    ("export", &["crossway export latest -o run.parquet", "crossway export --columns"]),
    (
        "completions",
        &[
            "crossway completions bash > ~/.local/share/bash-completion/completions/crossway",
            "crossway completions zsh",
        ],
    ),
    ("man", &["crossway man ~/.local/share/man/man1", "crossway man /usr/local/share/man/man1"]),
];

/// Adds the examples to the help of the program and of each visible subcommand.
pub(crate) fn with_examples(root: Command) -> Command {
    add(root, "")
}

fn add(command: Command, path: &str) -> Command {
    let examples = examples(&command, path);
    let command = match &examples[..] {
        [] => command,
        _ => command.after_help(format!("Examples:\n  {}", examples.join("\n  "))),
    };
    let names: Vec<String> =
        command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| {
        let below = below(path, &name);
        command.mut_subcommand(name, |sub| add(sub, &below))
    })
}

/// Returns the command's own examples, or those of its first subcommands.
fn examples(command: &Command, path: &str) -> Vec<&'static str> {
    if let Some((_, own)) = EXAMPLES.iter().find(|(of, _)| *of == path) {
        return own.to_vec();
    }
    let visible = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    let of_each: Vec<Vec<&str>> =
        visible.map(|sub| examples(sub, &below(path, sub.get_name()))).collect();
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
        for (path, _) in EXAMPLES {
            let mut at = &crate::command();
            for name in path.split_whitespace() {
                at = at.find_subcommand(name).unwrap_or_else(|| panic!("crossway {path}"));
            }
        }
    }
}
