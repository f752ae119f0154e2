//! Fences left out on purpose, to prove that `check` sees it.
//!
//! Only a build with the feature `faults`, which no release has, can leave
//! anything out. Without it [`Faults`] is empty and can't be made otherwise.

/// A fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Fault {
    /// The mounts over dot files.
    Masks,
    /// The mounts over what is hidden.
    Hides,
    /// Read-only mounts of what is only read.
    ReadOnly,
    /// The read-only mount of `/proc/sys`.
    ProcSys,
    /// Landlock.
    Landlock,
    /// Every entry of the filter but the broker's.
    Seccomp,
    /// The session keyring of its own.
    Keyring,
    /// The broker of Unix sockets.
    Broker,
    /// The network namespace.
    Network,
    /// The process namespace.
    Processes,
    /// The user namespace; root alone can do without.
    Users,
    /// The limit of further user namespaces.
    NamespaceLimit,
    /// Having no capabilities.
    Capabilities,
    /// Ending what a run leaves behind.
    Leftovers,
    /// Closing what descriptors were inherited.
    Descriptors,
    /// Clearing the environment.
    Environment,
    /// Landlock's list of programs.
    Programs,
    /// The loader's copy that runs nothing by itself.
    Loader,
    /// Making files in memory that can't be executed.
    Memory,
}

/// The fences that are left out.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Faults(#[cfg(feature = "faults")] Vec<Fault>);

#[cfg(feature = "faults")]
impl Faults {
    /// By the names of [`Fault`], in lower case with hyphens; `None` for one
    /// that isn't any.
    #[must_use]
    pub fn by_name<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<Faults> {
        let named = |name| {
            Some(match name {
                "masks" => Fault::Masks,
                "hides" => Fault::Hides,
                "read-only" => Fault::ReadOnly,
                "proc-sys" => Fault::ProcSys,
                "landlock" => Fault::Landlock,
                "seccomp" => Fault::Seccomp,
                "keyring" => Fault::Keyring,
                "broker" => Fault::Broker,
                "network" => Fault::Network,
                "processes" => Fault::Processes,
                "users" => Fault::Users,
                "namespace-limit" => Fault::NamespaceLimit,
                "capabilities" => Fault::Capabilities,
                "leftovers" => Fault::Leftovers,
                "descriptors" => Fault::Descriptors,
                "environment" => Fault::Environment,
                "programs" => Fault::Programs,
                "loader" => Fault::Loader,
                "memory" => Fault::Memory,
                _ => return None,
            })
        };
        names.into_iter().map(named).collect::<Option<_>>().map(Faults)
    }

    /// Whether a fence is left out.
    #[must_use]
    pub fn has(&self, fault: Fault) -> bool {
        self.0.contains(&fault)
    }
}

#[cfg(not(feature = "faults"))]
impl Faults {
    /// Never: this build leaves nothing out.
    #[must_use]
    pub const fn has(&self, _: Fault) -> bool {
        false
    }
}
