//! What a spec opens, shown to whoever runs it before it first does.

use std::path::PathBuf;

use lnk_spec::diff::Grants;
use lnk_spec::shown;

use crate::error::Result;
use crate::remembered::{Remembered, remember};
use crate::spec_file::SpecFile;
use crate::ssh;
use crate::state::Home;

/// Lines of grants up to which nobody has to scroll for them.
const ONE_SCREEN: usize = 15;

/// What an endpoint of SSH brings.
const SSH: &str = "  its own SSH key, not one of yours: it gets in wherever that is let in";

/// What somebody has to agree to before a spec runs.
#[derive(Debug)]
pub struct Question {
    /// What the spec opens that nobody agreed to yet: a line that says so, then
    /// each section and its grants, the widest first. Escaped.
    pub lines: Vec<String>,
    /// Why it is asked, in a few words that begin with the spec's name.
    pub why: String,
    /// The spec as it was typed, as one word.
    typed: String,
    spec: PathBuf,
    home: Option<Home>,
    grants: Grants,
}

impl Question {
    /// Compares a spec's grants with those that were agreed to. `None` where
    /// nothing is wider, nor elsewhere. Warnings are lines to show in any case.
    #[must_use]
    pub fn of(file: &SpecFile, grants: Grants, warnings: &mut Vec<String>) -> Option<Question> {
        let home = file.settings_home.clone();
        let older = home.as_ref().and_then(|home| Remembered::of(home, &file.real, warnings));
        let typed = shown::word(&file.typed);
        let (why, opens) = match older {
            None => (format!("{typed} hasn't run here before"), "It opens:"),
            Some(_) => (format!("{typed} opens more than you agreed to"), "New is:"),
        };
        let older = older.unwrap_or_default();
        let mut opened = opened(&grants, &older);
        if has_ssh(&grants) && !has_ssh(&older) {
            opened.push(SSH.into());
        }
        if opened.is_empty() {
            return None;
        }
        let place = if file.real == file.typed {
            String::new()
        } else {
            format!(" ({})", shown::word(&file.real))
        };
        let mut lines = vec![format!("lnk sandbox: {why}{place}. {opens}")];
        // What has scrolled away is what opens most.
        let count = opened.len();
        let scrolled = (count > ONE_SCREEN)
            .then(|| format!("  ({count} lines; the widest of each section come first)"));
        lines.extend(opened);
        lines.extend(scrolled);
        Some(Question { lines, why, typed, spec: file.real.clone(), home, grants })
    }

    /// The line for where there is nobody to ask.
    #[must_use]
    pub fn without_terminal(&self) -> String {
        let Question { why, typed, .. } = self;
        let see = shown::command(&format!("lnk sandbox spec --spec {typed}"));
        format!(
            "{why}, and there is no terminal to ask on: see what it opens with {see}, and agree \
             with --yes"
        )
    }

    /// The line for where the answer was no.
    #[must_use]
    pub fn refused(&self) -> String {
        format!("{}: nothing ran, since you didn't agree to what it opens", self.typed)
    }

    /// Remembers that it was agreed to.
    ///
    /// # Errors
    /// Naming the file that can't be written; it will be asked again then.
    pub fn agreed(self) -> Result<()> {
        match &self.home {
            Some(home) => remember(home, &self.spec, self.grants),
            None => Ok(()),
        }
    }
}

/// Whether the sandbox has an SSH key by what the spec says.
fn has_ssh(grants: &Grants) -> bool {
    grants.internet.tcp.iter().any(ssh::is_ssh)
}

/// Everything that is open now and wasn't, under the section's names.
fn opened(now: &Grants, older: &Grants) -> Vec<String> {
    let mut lines = Vec::new();
    let mut section = "";
    for widening in now.widened_since(older) {
        if widening.section != section {
            section = widening.section;
            lines.push(format!("  [{section}]"));
        }
        lines.push(format!("    {}: {}", widening.key, widening.change));
    }
    lines
}
