//! What a spec opens, in the words of a tool's description.

use lnk_sandbox::shown;
use lnk_sandbox::spec_file::SpecFile;
use lnk_sandbox::{Caller, Error};

use crate::place::Place;

/// Entries of each list that are named.
const MOST: usize = 10;

/// What programs may write and reach besides what they always may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opens {
    /// Folders and files that are written, as the spec has them.
    write: Vec<String>,
    /// Hosts and ports, as the spec has them.
    reach: Vec<String>,
}

impl Opens {
    /// What a place's spec opens.
    ///
    /// # Errors
    /// A spec that can't be read.
    pub fn of(place: &Place, caller: &Caller) -> Result<Opens, Error> {
        let Some(spec) = &place.spec else { return Ok(Opens::default()) };
        let spec = SpecFile::read(spec, caller)?.spec;
        let write = spec.files.write.iter().map(|path| shown::word(path.as_path()));
        let hosts = spec.internet.hosts.iter().map(ToString::to_string);
        let tcp = spec.internet.tcp.iter().map(ToString::to_string);
        let lan = spec.lan.hosts.iter().map(|host| format!("{host} of the local network"));
        let ports = spec.localhost.ports.iter().chain(&spec.localhost.models);
        let ports = ports.map(|port| format!("port {port} of this computer"));
        Ok(Opens {
            write: write.collect(),
            reach: hosts.chain(tcp).chain(lan).chain(ports).collect(),
        })
    }

    /// Two sentences: where programs write, and what they reach.
    #[must_use]
    pub fn described(&self) -> String {
        let write = match &self.write[..] {
            [] => "work".into(),
            more => format!("work, and in {}", listed(more)),
        };
        let reach = match &self.reach[..] {
            [] => "no network".into(),
            reach => listed(reach),
        };
        format!("It writes in the folder {write}. It reaches {reach}.")
    }
}

fn listed(entries: &[String]) -> String {
    let shown = entries.iter().take(MOST).cloned().collect::<Vec<_>>().join(", ");
    match entries.len().saturating_sub(MOST) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_is_said_in_few_words() {
        let said = |write: &[&str], reach: &[String]| {
            let write = write.iter().map(|it| (*it).to_owned()).collect();
            Opens { write, reach: reach.to_vec() }.described()
        };
        assert_eq!(said(&[], &[]), "It writes in the folder work. It reaches no network.");
        let hosts: Vec<String> = (0..12).map(|number| format!("{number}.example.com")).collect();
        let said = said(&["~/more"], &hosts);
        assert!(said.contains("work, and in ~/more."), "{said}");
        assert!(said.ends_with("9.example.com and 2 more."), "{said}");
    }
}
