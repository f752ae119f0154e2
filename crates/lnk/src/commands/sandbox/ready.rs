//! `lnk sandbox ready`, and what `run` does where the sandbox can't be built.

use std::path::Path;

use lnk_sandbox::ready::{self, Cause, Fix, Machine, Report, Step, probe};

use crate::error::{CommandError, Result};
use crate::ui::{self, Terminal};

/// Tell whether the sandbox can run on this machine, and offer what it needs
///
/// It builds a sandbox to see. Where that fails, it says why in a sentence, and
/// what helps. On a terminal it offers to install bubblewrap, or to add an
/// AppArmor profile where Ubuntu needs one; it shows each command before it
/// asks, and runs none without your yes. Without a terminal it prints them.
///
/// It exits with 0 where the sandbox can run, and with 125 where it can't.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {}

pub fn ready() -> Result<u8> {
    match settle()? {
        Settled::Ready { machine, report, .. } => {
            let layers = report.missing_layers.iter().map(|layer| format!("Note: {layer}.\n"));
            ui::page(&(can_run(&machine) + &layers.collect::<String>()))?;
            Ok(0)
        }
        Settled::NotReady { cause, fix, report, told } => {
            if !told {
                tell(&format!("{cause}; {}", fix.what), &fix);
            }
            report.missing_layers.iter().for_each(|layer| ui::explain(&format!("Note: {layer}.")));
            Err(CommandError::Told)
        }
    }
}

/// What `run` does once it couldn't build a sandbox, for the reason given:
/// `Ok` where the machine was mended and another try is worth it.
pub fn mend(reason: &str) -> Result<()> {
    match settle()? {
        Settled::Ready { mended: true, .. } => Ok(()),
        Settled::Ready { .. } => Err(CommandError::Because(format!(
            "the program didn't run: {reason} ('lnk sandbox ready' finds nothing else wrong)"
        ))),
        Settled::NotReady { told: true, .. } => Err(CommandError::Because(
            "the program didn't run: 'lnk sandbox ready' has to find the machine ready first"
                .into(),
        )),
        Settled::NotReady { cause, fix, .. } => {
            let what = &fix.what;
            let again = "'lnk sandbox ready' looks again then";
            tell(&format!("the program didn't run: {cause}; {what} ({again})"), &fix);
            Err(CommandError::Told)
        }
    }
}

/// Finds the machine ready, or says what is missing as [`ready()`] does.
pub fn must_be() -> Result<()> {
    match settle()? {
        Settled::Ready { .. } => Ok(()),
        Settled::NotReady { cause, fix, told, .. } => {
            if !told {
                tell(&format!("{cause}; {}", fix.what), &fix);
            }
            Err(CommandError::Told)
        }
    }
}

enum Settled {
    Ready {
        machine: Machine,
        report: Report,
        /// Something was mended on the way.
        mended: bool,
    },
    NotReady {
        cause: Cause,
        fix: Fix,
        report: Report,
        /// Cause and fix were shown, to ask.
        told: bool,
    },
}

/// Looks, offers what helps, and looks again as long as an offer was taken and
/// another cause came to light: bubblewrap first, say, and then its profile.
fn settle() -> Result<Settled> {
    let own_binary = super::own_binary()?;
    let mut tried = None;
    loop {
        let machine = Machine::look(Path::new("/"));
        let mut report = ready::check(&machine, |bwrap| probe::sandbox(bwrap, &own_binary));
        let Some(cause) = report.cause.take() else {
            return Ok(Settled::Ready { machine, report, mended: tried.is_some() });
        };
        let fix = cause.fix(&machine);
        let offered =
            if tried.as_ref() == Some(&fix) { Offer::NotMade } else { offer(&cause, &fix) };
        if offered != Offer::Taken {
            let told = offered == Offer::Refused;
            return Ok(Settled::NotReady { cause, fix, report, told });
        }
        tried = Some(fix);
    }
}

#[derive(PartialEq)]
enum Offer {
    /// There is nobody to ask, or nothing to offer.
    NotMade,
    /// No, or it went wrong.
    Refused,
    /// Yes, and all went well.
    Taken,
}

/// Shows a fix's commands, asks, and runs them.
fn offer(cause: &Cause, fix: &Fix) -> Offer {
    let Some(mut terminal) = fix.offered.then(Terminal::open).flatten() else {
        return Offer::NotMade;
    };
    let question = format!("lnk sandbox: {cause}; {}:", fix.what);
    let commands = fix.steps.iter().flat_map(Step::lines);
    let shown: Vec<_> = [question].into_iter().chain(commands).collect();
    if !terminal.ask(&shown, "Run it now?") {
        return Offer::Refused;
    }
    for step in &fix.steps {
        if let Err(error) = step.run() {
            ui::failure(&format!("'{}' failed: {error}", step.lines()[0]));
            return Offer::Refused;
        }
    }
    Offer::Taken
}

/// A line, and the commands to copy where there are some.
fn tell(line: &str, fix: &Fix) {
    let end = if fix.steps.is_empty() { "" } else { ":" };
    ui::failure(&format!("{line}{end}"));
    fix.steps.iter().flat_map(Step::lines).for_each(|line| ui::explain(&line));
}

fn can_run(machine: &Machine) -> String {
    let bwrap = machine.bwrap.as_ref().map(|bwrap| match bwrap.version {
        Some(version) => format!(" (bubblewrap {version}, {})", bwrap.path.display()),
        None => format!(" ({})", bwrap.path.display()),
    });
    format!("The sandbox can run here{}.\n", bwrap.unwrap_or_default())
}
