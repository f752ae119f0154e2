//! The crates' arrows go one way, and unsafe code stays in one crate.

use std::fs;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

/// Each crate, and the crates of the workspace that it is built from.
const ARROWS: &[(&str, &[&str])] = &[
    ("benches", &["testkit"]),
    ("lnk", &["lnk-sandbox"]),
    ("lnk-link-run", &["lnk-sandbox", "lnk-sys"]),
    ("lnk-sandbox", &["lnk-spec", "lnk-sys", "lnk-wire"]),
    ("lnk-spec", &[]),
    ("lnk-sys", &[]),
    ("lnk-wire", &["lnk-spec", "lnk-sys"]),
    ("testkit", &[]),
];

/// The only crate with unsafe code.
const UNSAFE: &str = "lnk-sys";

#[test]
fn crates_depend_on_each_other_only_along_the_arrows() {
    let metadata = metadata();
    let mut crates: Vec<_> = metadata.workspace_packages().into_iter().map(|p| &*p.name).collect();
    crates.sort_unstable();
    let known: Vec<_> = ARROWS.iter().map(|(name, _)| *name).collect();
    assert_eq!(crates, known, "the arrows name each crate");

    for package in metadata.workspace_packages() {
        let (_, allowed) = ARROWS.iter().find(|(name, _)| *name == *package.name).expect("known");
        for (dependency, kind) in within_the_workspace(package, &known) {
            // What only tests need may also be the kit.
            let by_a_test = kind == DependencyKind::Development && dependency == "testkit";
            assert!(
                by_a_test || allowed.contains(&dependency),
                "{} may not depend on {dependency}",
                package.name
            );
        }
    }
}

#[test]
fn only_one_crate_may_have_unsafe_code() {
    let metadata = metadata();
    let root = metadata.workspace_root.join("Cargo.toml");
    let root = fs::read_to_string(root).expect("the workspace has a manifest");
    assert!(root.contains("\nunsafe_code = \"forbid\"\n"), "the workspace forbids unsafe code");

    for package in metadata.workspace_packages() {
        let manifest = fs::read_to_string(&package.manifest_path).expect("a crate has a manifest");
        let forbidden = manifest.contains("\n[lints]\nworkspace = true\n");
        assert_eq!(forbidden, *package.name != UNSAFE, "lints of {}", package.name);
    }
}

fn metadata() -> Metadata {
    MetadataCommand::new().no_deps().exec().expect("cargo reads the workspace")
}

fn within_the_workspace<'a>(
    package: &'a Package,
    crates: &[&str],
) -> impl Iterator<Item = (&'a str, DependencyKind)> {
    let dependencies = package.dependencies.iter();
    dependencies.map(|d| (&*d.name, d.kind)).filter(|(name, _)| crates.contains(name))
}
