//! Times the cases in rounds.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::Result;
use crate::cases::{self, Case};
use crate::inside::Timed;
use crate::options::Options;
use crate::table;

/// Rounds before those that count.
pub const WARM_UP: usize = 3;
/// Before each start: bare bubblewrap doesn't wait until its sandbox is taken
/// down, and would leave that to the next case.
pub const PAUSE: Duration = Duration::from_millis(20);
/// Sandboxes started at once.
const AT_ONCE: usize = 200;
/// Rounds of those, and of what is timed inside: a few, as each is many.
pub const FEW_ROUNDS: usize = 5;

/// Times everything as the present user.
pub fn measure(options: &Options, home: &Path) -> Result<()> {
    let mut cases = cases::all(&options.lnk, home)?;
    cases.retain(works);
    if cases.first().is_none_or(|case| case.name != "bare bubblewrap") || cases.len() < 2 {
        return Err("bare bubblewrap or lnk doesn't work here".into());
    }
    table::starts(&cases, &starts(&cases, options.rounds)?);
    inside(&cases, &options.lnk, home)?;
    at_once(&cases)
}

/// Whether a case succeeds; what doesn't is named and left out.
fn works(case: &Case) -> bool {
    let works = case.command().status().is_ok_and(|status| status.success());
    if !works {
        eprintln!("benches: left out, as it fails here: {}", case.name);
    }
    works
}

/// Milliseconds, by case, then by round.
fn starts(cases: &[Case], rounds: usize) -> Result<Vec<Vec<f64>>> {
    let mut times = vec![Vec::with_capacity(rounds); cases.len()];
    for round in 0..WARM_UP + rounds {
        for (case, times) in cases.iter().zip(&mut times) {
            let mut command = case.command();
            std::thread::sleep(PAUSE);
            let start = Instant::now();
            let status = command.status()?;
            let took = start.elapsed();
            if !status.success() {
                return Err(format!("{}: {status}", case.name).into());
            }
            if round >= WARM_UP {
                times.push(milliseconds(took));
            }
        }
    }
    Ok(times)
}

/// A connect inside, bare and through the broker; a program's start, with a list
/// of programs too.
fn inside(cases: &[Case], lnk: &Path, home: &Path) -> Result<()> {
    // The folder of the case is the one thing that both of them see.
    let own = home.join("plain/benches");
    std::fs::copy(std::env::current_exe()?, &own)?;
    let listed = cases::listed(lnk, &own, home);
    let (bare, free) = (&cases[0], &cases[1]);
    let mut connects = [Vec::new(), Vec::new()];
    let mut programs = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..FEW_ROUNDS {
        for (case, times) in [bare, free].into_iter().zip(&mut connects) {
            times.push(Timed::Connect.microseconds(case, &own)?);
        }
        for (case, times) in [bare, free, &listed].into_iter().zip(&mut programs) {
            times.push(Timed::Program.microseconds(case, &own)?);
        }
    }
    table::connects(connects);
    table::programs(programs);
    Ok(())
}

/// Many at once, bare and by lnk, to the end of the last.
fn at_once(cases: &[Case]) -> Result<()> {
    leave_real_time();
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..FEW_ROUNDS {
        for (case, times) in cases.iter().zip(&mut times) {
            times.push(milliseconds(all_of(case, AT_ONCE)?));
        }
    }
    let [bare, lnk] = times;
    table::at_once(AT_ONCE, bare, lnk);
    Ok(())
}

/// In real time, many at once would keep the kernel's own threads, which take
/// namespaces down, from running at all: that is left before.
pub fn leave_real_time() {
    let own = std::process::id().to_string();
    let left = Command::new("chrt").args(["--other", "--pid", "0", &own]).status();
    if !left.is_ok_and(|status| status.success()) {
        eprintln!("benches: chrt is missing: many at once are measured as scheduled now");
    }
}

/// So many of a case at once, to the end of the last.
pub fn all_of(case: &Case, count: usize) -> Result<Duration> {
    let start = Instant::now();
    let children: Vec<_> = (0..count).map(|_| case.command().spawn()).collect();
    let mut failed = 0;
    for child in children {
        failed += usize::from(!child?.wait()?.success());
    }
    match failed {
        0 => Ok(start.elapsed()),
        _ => Err(format!("{}: {failed} of {count} at once failed", case.name).into()),
    }
}

/// In milliseconds.
pub fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
