//! Whether the sandbox can run on this machine, and what to do where it can't.
//!
//! The only proof is bubblewrap itself, run with the flags of a real sandbox:
//! AppArmor, for one, judges by program, so a namespace made here would prove
//! nothing. When that fails, [`diagnose`] tells the causes apart by the
//! machine's own files and bubblewrap's words, and [`Cause::fix`] says what
//! helps.

mod cause;
mod fix;
mod machine;
pub mod probe;

pub use cause::{Cause, diagnose};
pub use fix::{Fix, Step};
pub use machine::{Bwrap, Landlock, Machine, PackageManager, Version};
pub use probe::{Ended, ProbeFailure};

use std::path::Path;

/// What `lnk sandbox ready` found.
#[derive(Debug)]
pub struct Report {
    /// Why no sandbox can run here; `None` where one did.
    pub cause: Option<Cause>,
    /// Second layers that this kernel doesn't have, each a sentence. The sandbox
    /// runs without them.
    pub missing_layers: Vec<String>,
}

/// Looks for what stops a sandbox. `probe` is only run where the machine has
/// all that it needs; it gets the path of the trusted bubblewrap.
pub fn check(machine: &Machine, probe: impl FnOnce(&Path) -> Result<(), ProbeFailure>) -> Report {
    Report { cause: find_cause(machine, probe), missing_layers: missing_layers(machine) }
}

fn find_cause(
    machine: &Machine,
    probe: impl FnOnce(&Path) -> Result<(), ProbeFailure>,
) -> Option<Cause> {
    let bwrap = match &machine.bwrap {
        Ok(bwrap) => bwrap,
        Err(reason) => return Some(Cause::Bwrap(reason.clone())),
    };
    if let Some(cause) = cause::known_before_trying(machine, bwrap) {
        return Some(cause);
    }
    probe(&bwrap.path).err().map(|failure| diagnose(machine, &failure))
}

fn missing_layers(machine: &Machine) -> Vec<String> {
    const SCOPES: u32 = 6;
    let missing = match &machine.landlock {
        Landlock::Abi(abi) if *abi >= SCOPES => return Vec::new(),
        Landlock::Abi(abi) => format!(
            "this kernel's Landlock (version {abi}) can't hold signals and abstract sockets, \
             which Linux 6.12 added: the namespaces alone hold them"
        ),
        Landlock::NotBuilt => format!(
            "Landlock isn't in this kernel ({}): the mounts alone hold files. Linux 5.13 and \
             newer can have it",
            machine.kernel
        ),
        Landlock::OffAtBoot => "Landlock is off since boot: the mounts alone hold files. Add \
             landlock to the kernel's lsm= parameter to have it"
            .into(),
        // That stops the sandbox: it is a cause.
        Landlock::Failing(_) => return Vec::new(),
    };
    vec![missing]
}

#[cfg(test)]
mod tests {
    use super::machine::tests::good_machine;
    use super::*;
    use crate::linux::bwrap_path::NotFound;

    fn never(_: &Path) -> Result<(), ProbeFailure> {
        panic!("tried without need")
    }

    #[test]
    fn a_good_machine_has_no_cause_and_no_missing_layer() {
        let report = check(&good_machine(), |bwrap| {
            assert_eq!(bwrap, Path::new("/usr/bin/bwrap"));
            Ok(())
        });
        assert!(report.cause.is_none() && report.missing_layers.is_empty(), "{report:?}");
    }

    #[test]
    fn what_is_known_to_fail_isnt_tried() {
        let mut machine = good_machine();
        machine.bwrap = Err(NotFound::Missing);
        assert!(matches!(check(&machine, never).cause, Some(Cause::Bwrap(NotFound::Missing))));

        let mut machine = good_machine();
        machine.user_notification = false;
        assert!(matches!(check(&machine, never).cause, Some(Cause::NoNotification { .. })));
    }

    #[test]
    fn each_missing_second_layer_is_named() {
        let said = |landlock| {
            let report = check(&Machine { landlock, ..good_machine() }, |_| Ok(()));
            assert!(report.cause.is_none(), "a second layer never stops the sandbox");
            report.missing_layers.join("\n")
        };
        insta::assert_snapshot!(said(Landlock::Abi(5)), @"this kernel's Landlock (version 5) can't hold signals and abstract sockets, which Linux 6.12 added: the namespaces alone hold them");
        insta::assert_snapshot!(said(Landlock::NotBuilt), @"Landlock isn't in this kernel (6.18.0): the mounts alone hold files. Linux 5.13 and newer can have it");
        insta::assert_snapshot!(said(Landlock::OffAtBoot), @"Landlock is off since boot: the mounts alone hold files. Add landlock to the kernel's lsm= parameter to have it");
        assert_eq!(said(Landlock::Abi(6)), "");
    }
}
