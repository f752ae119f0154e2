//! The wire beside other proxies: tunnels, bytes, round trips and memory.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use crate::Result;
use crate::options::Options;
use crate::peers::{self, Way};
use crate::table;
use crate::tunnels::{Held, Load, measure};

/// Tunnels made at a time, and how many in all.
const MADE: [Load; 3] = [
    Load::Make { at_once: 1, count: 500 },
    Load::Make { at_once: 16, count: 4000 },
    Load::Make { at_once: 64, count: 4000 },
];
const ROUND_TRIPS: Load = Load::RoundTrips(2000);
const FETCHED: Load = Load::Fetch(512 << 20);
/// Tunnels that are open while memory is looked at.
const HELD: usize = 64;
/// A round here takes as long as many starts of a sandbox.
const STARTS_A_ROUND: usize = 3;

/// What was measured of one way; each but memory by round.
#[derive(Debug, Default)]
pub struct Figures {
    /// Tunnels a second: at 1, 16 and 64 at a time.
    pub made: [Vec<f64>; 3],
    /// Microseconds of one tunnel, alone.
    pub one: Vec<f64>,
    /// Microseconds.
    pub round_trip: Vec<f64>,
    /// Bytes a second.
    pub fetched: Vec<f64>,
    /// MiB (PSS), idle and with tunnels.
    pub memory: Option<[f64; 2]>,
}

/// Measures as the present user, in the network that `origin` is in.
pub fn measure_all(options: &Options, home: &Path, origin: IpAddr) -> Result<()> {
    let ways = peers::start(&options.lnk, home, &origin.to_string())?;
    let mut figures: Vec<Figures> =
        ways.iter().map(|way| memory(way, origin)).collect::<Result<_>>()?;
    let rounds = options.rounds.div_ceil(STARTS_A_ROUND);
    // The first warms up.
    round(&ways, origin, &mut ways.iter().map(|_| Figures::default()).collect::<Vec<_>>())?;
    for _ in 0..rounds {
        round(&ways, origin, &mut figures)?;
    }
    println!("\nThe wire, {rounds} rounds, the origin behind a veth pair:\n");
    table::ways(&ways, &figures);
    Ok(())
}

fn memory(way: &Way, origin: IpAddr) -> Result<Figures> {
    let Some(pid) = way.pid() else { return Ok(Figures::default()) };
    let idle = pss(pid)?;
    let _held = Held::open(HELD, origin, way)?;
    Ok(Figures { memory: Some([idle, pss(pid)?]), ..Figures::default() })
}

/// The proportional share of memory that a process has, in MiB.
fn pss(pid: u32) -> Result<f64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).ok_or("no Pss")?;
    let kibibytes: f64 = line.split_whitespace().next().ok_or("no Pss")?.parse()?;
    Ok(kibibytes / 1024.0)
}

/// Each load on each way, one way after another: what else the machine does hits
/// them all.
fn round(ways: &[Way], origin: IpAddr, into: &mut [Figures]) -> Result<()> {
    for (at, load) in MADE.into_iter().enumerate() {
        for (way, into) in ways.iter().zip(&mut *into) {
            let [a_second, one] = measure(load, origin, way)?;
            into.made[at].push(a_second);
            if at == 0 {
                into.one.push(one);
            }
        }
    }
    for (way, into) in ways.iter().zip(&mut *into) {
        let [microseconds] = measure(ROUND_TRIPS, origin, way)?;
        into.round_trip.push(microseconds);
    }
    for (way, into) in ways.iter().zip(into) {
        let [bytes] = measure(FETCHED, origin, way)?;
        into.fetched.push(bytes);
    }
    Ok(())
}
