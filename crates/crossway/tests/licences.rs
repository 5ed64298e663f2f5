//! Checks that no dependency has a licence that is incompatible with the project's own (MIT OR Apache-2.0).

use std::process::Command;

use serde_json::Value;
use spdx::{Expression, LicenseItem};

/// Licences that require at most attribution.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

fn allows(expression: &str) -> Result<bool, spdx::ParseError> {
    let expression = Expression::parse_mode(expression, spdx::ParseMode::LAX)?;
    Ok(expression.evaluate(|requirement| match &requirement.license {
        LicenseItem::Spdx { id, .. } => ALLOWED.contains(&id.name),
        LicenseItem::Other(_) => false,
    }))
}

#[test]
fn every_dependency_has_a_compatible_licence() {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform"])
        .arg("x86_64-unknown-linux-gnu")
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .expect("cargo metadata runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let metadata: Value = serde_json::from_slice(&out.stdout).expect("cargo metadata prints JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    assert!(packages.len() > 50, "only {} packages: the check looks at nothing", packages.len());
    let refused: Vec<String> = packages
        .iter()
        .filter_map(|package| {
            let name = package["name"].as_str().unwrap_or("?");
            match package["license"].as_str() {
                None => Some(format!("{name}: states no licence")),
                Some(text) => match allows(text) {
                    Ok(true) => None,
                    Ok(false) => Some(format!("{name}: {text}")),
                    Err(error) => Some(format!("{name}: {text}: {error}")),
                },
            }
        })
        .collect();
    assert!(refused.is_empty(), "incompatible licences:\n{}", refused.join("\n"));
}

#[test]
fn the_check_refuses_copyleft_and_takes_a_choice() {
    assert!(!allows("GPL-2.0-only").unwrap());
    assert!(!allows("MIT AND GPL-3.0-or-later").unwrap());
    assert!(allows("GPL-3.0-only OR MIT").unwrap());
    assert!(allows("MIT/Apache-2.0").unwrap());
}

#[test]
fn cargo_deny_allows_the_same_licences() {
    let config: toml::Table = include_str!("../../../deny.toml").parse().expect("TOML");
    let allowed = config["licenses"]["allow"].as_array().expect("a list");
    let allowed: Vec<&str> = allowed.iter().filter_map(toml::Value::as_str).collect();
    assert_eq!(allowed, ALLOWED);
}
