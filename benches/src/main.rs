//! start-up times
fn main() {}
