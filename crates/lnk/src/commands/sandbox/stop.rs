//! `lnk sandbox stop`.

use std::path::Path;

use lnk_sandbox::account::Accounts;
use lnk_sandbox::error::reason;
use lnk_sandbox::shown::{command, escaped_name, word};
use lnk_sandbox::wire::control::Told;
use lnk_sandbox::wire::paused::{STOPPED, State};
use lnk_sandbox::{Caller, state};

use super::{caller, named};
use crate::error::{CommandError, Result};
use crate::ui;

/// Close every sandbox's wire
///
/// Within a second every open call ends and new ones are refused, whatever the
/// programs do; they keep running. Runs that start meanwhile have their wires
/// closed too. The log stays.
///
/// Every sandbox is this user's, by the home folder: root's command stops those of
/// root. Another user's are stopped by: sudo -u USER -H lnk sandbox stop
///
/// A sandbox without a wire, such as one with --allow network, stops only when
/// its program does.
///
/// stop exits with 0; with 1 where it is done, but a wire didn't answer, which
/// closes when its lnk goes on, or it couldn't be printed; with 125 where it isn't.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Open the wires again, but those that are paused
    #[arg(long)]
    off: bool,
}

pub fn stop(args: &Args) -> Result<u8> {
    let caller = caller()?;
    let folder = state::make_sandbox(&caller)?;
    let failed = |error: std::io::Error| {
        let file = word(folder.join(STOPPED));
        let what = if args.off { "removed" } else { "made" };
        CommandError::Because(format!("{file} can't be {what}: {}", reason(&error)))
    };
    let state = State::open(&folder).map_err(failed)?;
    let is_new = if args.off { state.start() } else { state.stop() }.map_err(failed)?;
    Ok(named::done(tell(args.off, is_new, &caller, &folder)))
}

/// Has every wire look, also where it was so before: one may not have heard of it.
fn tell(off: bool, is_new: bool, caller: &Caller, folder: &Path) -> Result<u8> {
    let told = named::tell(folder)?;
    for name in &told.silent {
        ui::failure(&format!(
            "{} doesn't answer: its lnk is stopped or busy, and looks once it goes on",
            escaped_name(name.as_bytes())
        ));
    }
    ui::page(&line(off, is_new, &told, &whose(caller)))?;
    if let Some(line) = others(off, caller) {
        ui::explain(&line);
    }
    if off {
        let all = named::known(caller, folder)?;
        for known in all.iter().filter(|known| known.pause.is_some()) {
            ui::explain(&format!("{} is still paused.", known.whole_name()));
        }
    }
    Ok(if told.silent.is_empty() { 0 } else { named::NOT_WHOLE })
}

fn line(off: bool, is_new: bool, told: &Told, whose: &str) -> String {
    let looked = || told.wires.iter().map(|(_, looked)| looked);
    let wires = |number| named::counted(number, "wire") + whose;
    if off {
        let opened = wires(named::opened(looked()));
        return if is_new {
            format!("{opened} opened.")
        } else {
            format!("Nothing{whose} was stopped.")
        };
    }
    let (closed, ended) = named::closed(looked());
    let (closed, ended) = (wires(closed), named::counted(ended, "call"));
    let already = if is_new { "Stopped" } else { "Stopped already" };
    format!("{already}: {closed} closed, {ended} ended. 'lnk sandbox stop --off' opens them.")
}

/// Whose they are, where that isn't plain: root may mean everybody's.
fn whose(caller: &Caller) -> String {
    if caller.uid != 0 {
        return String::new();
    }
    let name = Accounts::of(caller.uid, caller.gid).own.name;
    format!(" of {}", escaped_name(name.as_encoded_bytes()))
}

/// The line for whoever became root and may mean their own.
fn others(off: bool, caller: &Caller) -> Option<String> {
    let user = caller.var("SUDO_USER").filter(|user| caller.uid == 0 && *user != "root")?;
    let (off, opens) = if off { (" --off", "opens") } else { ("", "closes") };
    let stop = command(&format!("sudo -u {} -H lnk sandbox stop{off}", word(user)));
    let user = escaped_name(user.as_encoded_bytes());
    Some(format!("Those of {user} are as they were: {stop} {opens} them."))
}
