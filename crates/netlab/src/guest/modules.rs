//! Kernel modules in the order in which they can be loaded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The contents of `modules.dep`, each module's file with the files it depends on, and of `modules.builtin`.
#[derive(Default)]
pub(crate) struct Modules {
    folder: PathBuf,
    needs: BTreeMap<String, (String, Vec<String>)>,
    built_in: BTreeSet<String>,
}

impl Modules {
    /// Reads a kernel's module folder.
    pub(crate) fn read(folder: &Path) -> std::io::Result<Modules> {
        let text = std::fs::read_to_string(folder.join("modules.dep"))?;
        let built_in = std::fs::read_to_string(folder.join("modules.builtin")).unwrap_or_default();
        let built_in = built_in.lines().map(key).collect();
        Ok(Modules { folder: folder.to_owned(), needs: parse(&text), built_in })
    }

    /// Whether the kernel contains `name`, so that there is nothing to load.
    pub(crate) fn is_built_in(&self, name: &str) -> bool {
        self.built_in.contains(&key(name))
    }

    /// The files to load for `name`, dependencies first; empty if there is no such module (it may be built in).
    pub(crate) fn in_order(&self, name: &str) -> Vec<PathBuf> {
        let mut order = Vec::new();
        let mut seen = BTreeSet::new();
        self.visit(&key(name), &mut seen, &mut order);
        order.into_iter().map(|file| self.folder.join(file)).collect()
    }

    fn visit<'a>(&'a self, name: &str, seen: &mut BTreeSet<String>, order: &mut Vec<&'a str>) {
        if !seen.insert(name.to_owned()) {
            return;
        }
        let Some((file, needs)) = self.needs.get(name) else { return };
        for need in needs {
            self.visit(need, seen, order);
        }
        order.push(file);
    }
}

/// Parses lines of the form `kernel/net/x.ko: kernel/net/y.ko ...`.
fn parse(text: &str) -> BTreeMap<String, (String, Vec<String>)> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(file, needs)| {
            let needs = needs.split_ascii_whitespace().map(key).collect();
            (key(file), (file.to_owned(), needs))
        })
        .collect()
}

/// A module's name from its path: `kernel/lib/crc-ccitt.ko` is `crc_ccitt`, as in the kernel.
fn key(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.split('.').next().unwrap_or(name).replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_come_before_a_module_and_only_once() {
        let text = "kernel/net/tipc/tipc.ko: kernel/net/ipv6/ipv6.ko kernel/lib/crc-ccitt.ko kernel/net/t.ko\n\
                    kernel/net/ipv6/ipv6.ko: kernel/lib/crc-ccitt.ko\n\
                    kernel/lib/crc-ccitt.ko:\nkernel/net/t.ko:\n";
        let modules =
            Modules { folder: PathBuf::from("/m"), needs: parse(text), ..Modules::default() };
        let order: Vec<_> =
            modules.in_order("tipc").iter().map(|p| p.display().to_string()).collect();
        assert_eq!(
            order,
            [
                "/m/kernel/lib/crc-ccitt.ko",
                "/m/kernel/net/ipv6/ipv6.ko",
                "/m/kernel/net/t.ko",
                "/m/kernel/net/tipc/tipc.ko"
            ]
        );
        assert_eq!(modules.in_order("crc-ccitt").len(), 1);
        assert!(modules.in_order("unix").is_empty());
    }
}
