//! Telling apart why bubblewrap can't build a sandbox.

use std::path::PathBuf;

use lnk_spec::shown::{escaped, word};

use super::machine::{Bwrap, Landlock, Machine, Version};
use super::probe::{DEADLINE, Ended, ProbeFailure};
use crate::error::reason;
use crate::linux::bwrap_path::NotFound;

/// The oldest bubblewrap with `--disable-userns`.
const OLDEST: Version = Version(0, 8, 0);

/// Why no sandbox can run on a machine. `Display` is one sentence, without what
/// helps: that is [`Cause::fix`].
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// There is no bubblewrap, or none that can be trusted.
    #[error("{0}")]
    Bwrap(NotFound),
    /// bubblewrap lacks `--disable-userns`.
    #[error("{} is too old: it has to be bubblewrap {OLDEST} or newer{}", word(.path), is(.version))]
    TooOld {
        /// bubblewrap's path.
        path: PathBuf,
        /// Its version, where it tells.
        version: Option<Version>,
    },
    /// bubblewrap runs as root for everyone, and then refuses flags that the
    /// sandbox needs.
    #[error("{} has the setuid bit, and refuses to close user namespaces then", word(.0))]
    Setuid(PathBuf),
    /// The kernel can't hand calls to a supervisor.
    #[error(
        "this kernel ({kernel}) has no seccomp notifications: Linux 5.0 and newer do, \
             gVisor and WSL 1 don't"
    )]
    NoNotification {
        /// The kernel's release.
        kernel: String,
    },
    /// Landlock is there and can't be asked: a filter around this process, say.
    /// The second layer is only ever left out where the kernel has none.
    #[error("Landlock is in this kernel and doesn't answer here ({0})")]
    Landlock(String),
    /// A kernel built without user namespaces.
    #[error("this kernel ({kernel}) has no user namespaces")]
    NoUserNamespaces {
        /// The kernel's release.
        kernel: String,
    },
    /// `kernel.unprivileged_userns_clone` is 0.
    #[error("user namespaces are off for ordinary users: kernel.unprivileged_userns_clone is 0")]
    UserNamespacesOff,
    /// `user.max_user_namespaces` is 0, or as many are in use.
    #[error("no more user namespaces may be made here: user.max_user_namespaces is {}", limit(.0))]
    UserNamespaceLimit(Option<u64>),
    /// Ubuntu's restriction, without a profile for bubblewrap.
    #[error("AppArmor keeps {} from making user namespaces", word(.0))]
    AppArmor(PathBuf),
    /// Ubuntu's restriction, and a profile for bubblewrap that isn't ours.
    #[error("AppArmor's profile in {} holds bubblewrap back", word(.0))]
    OtherProfile(PathBuf),
    /// A container's seccomp filter refuses namespaces.
    #[error("this container's seccomp filter refuses namespaces")]
    ContainerFilter,
    /// A container covers parts of `/proc`, and the kernel then refuses a new one.
    #[error("this container covers parts of /proc, so that the kernel refuses a new /proc")]
    CoveredProc,
    /// A container's security profile refuses mounts.
    #[error("this container's security profile refuses mounts")]
    ContainerMounts,
    /// The kernel refuses a namespace, and no file tells why.
    #[error("the kernel refuses namespaces to bubblewrap ('{0}')")]
    Refused(String),
    /// bubblewrap didn't end.
    #[error("bubblewrap didn't end within {} seconds", DEADLINE.as_secs())]
    TooLate,
    /// bubblewrap couldn't be run.
    #[error("bubblewrap can't be run: {0}")]
    NotRun(String),
    /// bubblewrap failed in a way that isn't known.
    #[error("bubblewrap failed: {0}")]
    Other(String),
}

fn is(version: &Option<Version>) -> String {
    version.map_or_else(String::new, |version| format!(", and it is {version}"))
}

fn limit(value: &Option<u64>) -> String {
    match value {
        Some(0) => "0".into(),
        Some(value) => format!("{value}, and all are in use here or around here"),
        None => "reached".into(),
    }
}

/// What stops a sandbox whatever bubblewrap would say.
pub(super) fn known_before_trying(machine: &Machine, bwrap: &Bwrap) -> Option<Cause> {
    if bwrap.version.is_some_and(|version| version < OLDEST) {
        return Some(Cause::TooOld { path: bwrap.path.clone(), version: bwrap.version });
    }
    if !machine.user_notification {
        return Some(Cause::NoNotification { kernel: machine.kernel.clone() });
    }
    if let Landlock::Failing(error) = &machine.landlock {
        return Some(Cause::Landlock(reason(error)));
    }
    None
}

/// The cause of a failed probe. The machine's files come first: the same errno
/// has many causes, and a setting that reads 0 is one.
pub fn diagnose(machine: &Machine, failure: &ProbeFailure) -> Cause {
    match &failure.ended {
        Ended::TooLate => return Cause::TooLate,
        Ended::NotRun(error) => return Cause::NotRun(reason(error)),
        Ended::Status(_) => {}
    }
    let said = Said::of(failure);
    setting(machine)
        .or_else(|| bwraps_own(machine, &said))
        .or_else(|| refused_namespace(machine, &said))
        .or_else(|| refused_mount(machine, &said))
        .unwrap_or_else(|| Cause::Other(said.sentence(failure)))
}

/// Settings that turn user namespaces off. Root is only held by the limit.
fn setting(machine: &Machine) -> Option<Cause> {
    if !machine.user_namespaces {
        return Some(Cause::NoUserNamespaces { kernel: machine.kernel.clone() });
    }
    if machine.max_user_namespaces == Some(0) {
        return Some(Cause::UserNamespaceLimit(Some(0)));
    }
    if machine.unprivileged_userns_clone == Some(0) && !machine.root {
        return Some(Cause::UserNamespacesOff);
    }
    None
}

fn bwraps_own(machine: &Machine, said: &Said) -> Option<Cause> {
    let bwrap = machine.bwrap.as_ref().ok()?;
    if bwrap.setuid {
        return Some(Cause::Setuid(bwrap.path.clone()));
    }
    said.has("Unknown option")
        .then(|| Cause::TooOld { path: bwrap.path.clone(), version: bwrap.version })
}

fn refused_namespace(machine: &Machine, said: &Said) -> Option<Cause> {
    let made = said.has("reating new namespace failed") || said.has("to creat");
    let full = said.has("No space left on device") || said.has("ENOSPC");
    if full && made {
        return Some(Cause::UserNamespaceLimit(machine.max_user_namespaces));
    }
    if said.has("does not support user namespaces") {
        return Some(Cause::NoUserNamespaces { kernel: machine.kernel.clone() });
    }
    let created = made && (said.has("No permissions") || said.has("not permitted"));
    let used = said.has("setting up uid map") || said.has("RTM_NEWADDR");
    if created && (machine.container || machine.filtered) {
        return Some(Cause::ContainerFilter);
    }
    if (created || used) && machine.apparmor_restricts && !machine.root {
        return Some(apparmor(machine));
    }
    (created || used).then(|| Cause::Refused(said.0.clone()))
}

fn apparmor(machine: &Machine) -> Cause {
    match (&machine.other_profile, &machine.bwrap) {
        (Some(profile), _) => Cause::OtherProfile(profile.clone()),
        (None, Ok(bwrap)) => Cause::AppArmor(bwrap.path.clone()),
        (None, Err(reason)) => Cause::Bwrap(reason.clone()),
    }
}

fn refused_mount(machine: &Machine, said: &Said) -> Option<Cause> {
    if said.has("mount proc") && (said.has("not permitted") || said.has("denied")) {
        return Some(Cause::CoveredProc);
    }
    (said.has("Failed to make / slave") && machine.container).then_some(Cause::ContainerMounts)
}

/// bubblewrap's last line, without its `bwrap:`, as it may be shown.
struct Said(String);

impl Said {
    fn of(failure: &ProbeFailure) -> Self {
        let text = String::from_utf8_lossy(&failure.stderr);
        let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        Self(escaped(line.trim().trim_start_matches("bwrap: ").as_bytes()))
    }

    fn has(&self, words: &str) -> bool {
        self.0.contains(words)
    }

    fn sentence(&self, failure: &ProbeFailure) -> String {
        match (&failure.ended, self.0.as_str()) {
            (Ended::Status(status), "") => format!("it said nothing ({status})"),
            (_, said) => said.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::good_machine;
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    fn said(text: &str) -> ProbeFailure {
        ProbeFailure {
            stderr: text.as_bytes().to_vec(),
            ended: Ended::Status(ExitStatus::from_raw(1 << 8)),
        }
    }

    const NO_PERMISSIONS: &str = "bwrap: No permissions to create new namespace, likely because \
        the kernel does not allow non-privileged user namespaces. On e.g. debian this can be \
        enabled with 'sysctl kernel.unprivileged_userns_clone=1'.\n";
    const UID_MAP: &str = "bwrap: setting up uid map: Permission denied\n";
    const LOOPBACK: &str = "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted\n";
    const PROC: &str = "bwrap: Can't mount proc on /newroot/proc: Operation not permitted\n";
    const NO_SPACE: &str = "bwrap: Creating new namespace failed: No space left on device\n";
    const NESTED: &str = "bwrap: Creating new namespace failed: nesting depth or \
        /proc/sys/user/max_*_namespaces exceeded (ENOSPC)\n";
    const NOT_PERMITTED: &str = "bwrap: Creating new namespace failed: Operation not permitted\n";

    /// The sentence for these words on a good machine changed so.
    fn cause(text: &str, change: impl FnOnce(&mut Machine)) -> String {
        let mut machine = good_machine();
        change(&mut machine);
        diagnose(&machine, &said(text)).to_string()
    }

    fn bwrap(machine: &mut Machine) -> &mut Bwrap {
        machine.bwrap.as_mut().unwrap()
    }

    #[test]
    fn settings_are_read_and_not_guessed() {
        insta::assert_snapshot!(cause(NO_PERMISSIONS, |m| m.unprivileged_userns_clone = Some(0)), @"user namespaces are off for ordinary users: kernel.unprivileged_userns_clone is 0");
        insta::assert_snapshot!(cause(NO_SPACE, |m| m.max_user_namespaces = Some(0)), @"no more user namespaces may be made here: user.max_user_namespaces is 0");
        insta::assert_snapshot!(cause(NO_SPACE, |m| m.max_user_namespaces = Some(5)), @"no more user namespaces may be made here: user.max_user_namespaces is 5, and all are in use here or around here");
        assert_eq!(
            cause(NESTED, |m| m.max_user_namespaces = Some(5)),
            cause(NO_SPACE, |m| m.max_user_namespaces = Some(5))
        );
        insta::assert_snapshot!(cause("", |m| m.user_namespaces = false), @"this kernel (6.18.0) has no user namespaces");
    }

    #[test]
    fn only_the_limit_holds_root() {
        let clone_off = |m: &mut Machine| (m.root, m.unprivileged_userns_clone) = (true, Some(0));
        assert!(!cause(NOT_PERMITTED, clone_off).contains("userns_clone"));
        let limit = |m: &mut Machine| (m.root, m.max_user_namespaces) = (true, Some(0));
        assert!(cause(NOT_PERMITTED, limit).contains("max_user_namespaces is 0"));
        let apparmor = |m: &mut Machine| (m.root, m.apparmor_restricts) = (true, true);
        assert!(!cause(UID_MAP, apparmor).contains("AppArmor"));
    }

    #[test]
    fn containers_are_told_from_the_kernel() {
        insta::assert_snapshot!(cause(NO_PERMISSIONS, |m| m.container = true), @"this container's seccomp filter refuses namespaces");
        assert_eq!(
            cause(NO_PERMISSIONS, |m| m.filtered = true),
            cause(NOT_PERMITTED, |m| (m.root, m.container) = (true, true))
        );
        insta::assert_snapshot!(cause(PROC, |_| {}), @"this container covers parts of /proc, so that the kernel refuses a new /proc");
        let slave = "bwrap: Failed to make / slave: Permission denied";
        insta::assert_snapshot!(cause(slave, |m| m.container = true), @"this container's security profile refuses mounts");
        insta::assert_snapshot!(cause(NO_PERMISSIONS, |_| {}), @"the kernel refuses namespaces to bubblewrap ('No permissions to create new namespace, likely because the kernel does not allow non-privileged user namespaces. On e.g. debian this can be enabled with 'sysctl kernel.unprivileged_userns_clone=1'.')");
    }

    #[test]
    fn apparmor_is_told_by_its_setting() {
        let on = |m: &mut Machine| m.apparmor_restricts = true;
        insta::assert_snapshot!(cause(UID_MAP, on), @"AppArmor keeps /usr/bin/bwrap from making user namespaces");
        assert_eq!(cause(LOOPBACK, on), cause(UID_MAP, on));
        assert_eq!(cause(NO_PERMISSIONS, on), cause(UID_MAP, on));
        let theirs = |m: &mut Machine| {
            on(m);
            m.other_profile = Some("/etc/apparmor.d/bwrap-userns-restrict".into());
        };
        insta::assert_snapshot!(cause(UID_MAP, theirs), @"AppArmor's profile in /etc/apparmor.d/bwrap-userns-restrict holds bubblewrap back");
        insta::assert_snapshot!(cause(UID_MAP, |_| {}), @"the kernel refuses namespaces to bubblewrap ('setting up uid map: Permission denied')");
        insta::assert_snapshot!(cause(LOOPBACK, |_| {}), @"the kernel refuses namespaces to bubblewrap ('loopback: Failed RTM_NEWADDR: Operation not permitted')");
    }

    #[test]
    fn bubblewraps_own_failings() {
        insta::assert_snapshot!(cause("", |m| bwrap(m).setuid = true), @"/usr/bin/bwrap has the setuid bit, and refuses to close user namespaces then");
        let unknown = "bwrap: Unknown option --disable-userns";
        insta::assert_snapshot!(cause(unknown, |m| bwrap(m).version = None), @"/usr/bin/bwrap is too old: it has to be bubblewrap 0.8.0 or newer");

        let mut machine = good_machine();
        bwrap(&mut machine).version = Some(Version(0, 6, 1));
        let old = known_before_trying(&machine, machine.bwrap.as_ref().unwrap()).unwrap();
        insta::assert_snapshot!(old.to_string(), @"/usr/bin/bwrap is too old: it has to be bubblewrap 0.8.0 or newer, and it is 0.6.1");
        bwrap(&mut machine).version = Some(Version(0, 8, 0));
        assert!(known_before_trying(&machine, machine.bwrap.as_ref().unwrap()).is_none());
    }

    #[test]
    fn a_kernel_without_notifications_cant_do_it() {
        let mut machine = good_machine();
        machine.user_notification = false;
        let cause = known_before_trying(&machine, machine.bwrap.as_ref().unwrap()).unwrap();
        insta::assert_snapshot!(cause.to_string(), @"this kernel (6.18.0) has no seccomp notifications: Linux 5.0 and newer do, gVisor and WSL 1 don't");
    }

    #[test]
    fn landlock_that_fails_isnt_landlock_that_is_absent() {
        let known = |landlock| {
            let machine = Machine { landlock, ..good_machine() };
            let cause = known_before_trying(&machine, machine.bwrap.as_ref().unwrap());
            cause.map(|cause| cause.to_string())
        };
        let refused = std::io::Error::from_raw_os_error(libc::EPERM);
        insta::assert_snapshot!(known(Landlock::Failing(refused)).unwrap(), @"Landlock is in this kernel and doesn't answer here (operation not permitted)");
        assert_eq!(known(Landlock::NotBuilt), None);
    }

    #[test]
    fn what_isnt_known_is_shown_as_said() {
        insta::assert_snapshot!(cause("bwrap: first\nbwrap: new \x1b[31mtrouble\u{202e}\n\n", |_| {}), @r#"bubblewrap failed: new \x1b[31mtrouble\u{202e}"#);
        insta::assert_snapshot!(cause("", |_| {}), @"bubblewrap failed: it said nothing (exit status: 1)");
        let late = ProbeFailure { stderr: Vec::new(), ended: Ended::TooLate };
        insta::assert_snapshot!(diagnose(&good_machine(), &late).to_string(), @"bubblewrap didn't end within 10 seconds");
        let not_run = Ended::NotRun(std::io::ErrorKind::PermissionDenied.into());
        let not_run = ProbeFailure { stderr: Vec::new(), ended: not_run };
        insta::assert_snapshot!(diagnose(&good_machine(), &not_run).to_string(), @"bubblewrap can't be run: permission denied");
    }
}
