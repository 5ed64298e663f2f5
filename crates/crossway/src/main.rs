//! The program: parses, calls, prints.
fn main() {}
