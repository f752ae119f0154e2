//! `lnk sandbox stop`.

use std::io;
use std::path::Path;

use lnk_sandbox::account::Accounts;
use lnk_sandbox::error::reason;
use lnk_sandbox::shown::{command, escaped_name, word};
use lnk_sandbox::wire::control::{Change, Told};
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
    if args.off { open(&caller, &folder) } else { close(&caller, &folder) }
}

fn close(caller: &Caller, folder: &Path) -> Result<u8> {
    // First those that run, also where it was so before: one may not have heard of it.
    let told = named::tell(folder, &Change::Stop)?;
    let (closed, ended) = named::closed(told.wires.iter().map(|(_, looked)| looked));
    let closed = named::counted(closed, "wire") + &whose(caller);
    let done = format!("{closed} closed, {} ended", named::counted(ended, "call"));
    match State::open(folder).and_then(|state| state.stop()) {
        Ok(is_new) => {
            let already = if is_new { "Stopped" } else { "Stopped already" };
            let line = format!("{already}: {done}. 'lnk sandbox stop --off' opens them.");
            Ok(named::done(say(&line, false, &told, caller)))
        }
        Err(error) => Err(CommandError::Because(format!(
            "{done}, but {} can't be made ({}), so a run that starts from now on isn't closed: make \
             room there, and stop again",
            word(folder.join(STOPPED)),
            reason(&error),
        ))),
    }
}

fn open(caller: &Caller, folder: &Path) -> Result<u8> {
    let failed = |error: io::Error| {
        let file = word(folder.join(STOPPED));
        CommandError::Because(format!("{file} can't be removed: {}", reason(&error)))
    };
    let was_stopped = State::open(folder).and_then(|state| state.start()).map_err(failed)?;
    let told = named::tell(folder, &Change::Start)?;
    let opened = named::opened(told.wires.iter().map(|(_, looked)| looked));
    let line = match (was_stopped, opened) {
        (false, 0) => format!("Nothing{} was stopped.", whose(caller)),
        _ => format!("{}{} opened.", named::counted(opened, "wire"), whose(caller)),
    };
    Ok(named::done(say(&line, true, &told, caller).and_then(|status| {
        let all = named::known(caller, folder)?;
        for known in all.iter().filter(|known| known.pause.is_some()) {
            ui::explain(&format!("{} is still paused.", known.whole_name()));
        }
        Ok(status)
    })))
}

/// Says what was done, of whom nothing is known, and whose others are as they were.
fn say(line: &str, off: bool, told: &Told, caller: &Caller) -> Result<u8> {
    for name in &told.silent {
        ui::failure(&format!(
            "{} doesn't answer: its lnk is stopped or busy, and does so once it goes on",
            escaped_name(name.as_bytes())
        ));
    }
    ui::page(line)?;
    if let Some(line) = others(off, caller) {
        ui::explain(&line);
    }
    Ok(if told.silent.is_empty() { 0 } else { named::NOT_WHOLE })
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
