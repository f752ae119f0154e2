//! The `lnk` command.
fn main() {}
