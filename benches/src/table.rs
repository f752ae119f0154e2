//! Prints what was measured.

use std::process::Command;

use crate::Result;
use crate::cases::Case;
use crate::options::Options;
use crate::peers::Way;
use crate::run;
use crate::wire::Figures;

/// The machine and the way of measuring.
pub fn heading(options: &Options) -> Result<()> {
    let uname = rustix::system::uname();
    let cores = std::thread::available_parallelism()?;
    let bwrap = Command::new("bwrap").arg("--version").output()?;
    let scheduler = Command::new("chrt").args(["-p", &std::process::id().to_string()]).output();
    let scheduler = scheduler.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let real_time = scheduler.is_ok_and(|text| text.contains("SCHED_RR"));
    println!(
        "Linux {}, {cores} cores, {}, {} rounds, scheduler {}.",
        uname.release().to_string_lossy(),
        String::from_utf8_lossy(&bwrap.stdout).trim(),
        options.rounds,
        if real_time { "real-time (chrt -r 1)" } else { "ordinary" }
    );
    Ok(())
}

/// Start and end of `/bin/true`, each case against the first.
pub fn starts(cases: &[Case], times: &[Vec<f64>]) {
    println!("| start and end of `/bin/true` | median ms | p10 | p90 | × bare | paired | limit |");
    println!("|---|---|---|---|---|---|---|");
    let bare = &times[0];
    for (case, times) in cases.iter().zip(times) {
        let paired = times.iter().zip(bare).map(|(time, bare)| time / bare).collect();
        println!(
            "| {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {} |",
            case.name,
            quantile(times.clone(), 0.5),
            quantile(times.clone(), 0.1),
            quantile(times.clone(), 0.9),
            quantile(times.clone(), 0.5) / quantile(bare.clone(), 0.5),
            quantile(paired, 0.5),
            case.limit,
        );
    }
}

/// A TCP connect inside, medians of each round.
pub fn connects(bare_and_lnk: [Vec<f64>; 2]) {
    let [bare, lnk] = bare_and_lnk.map(|times| quantile(times, 0.5));
    println!(
        "\nA TCP connect from inside: bare {bare:.1} µs, through the broker {lnk:.1} µs, \
         {:.1} µs more (≤ 50, aim 30).",
        lnk - bare
    );
}

/// Start and end of a program inside, medians of each round.
pub fn programs(bare_free_and_listed: [Vec<f64>; 3]) {
    let [bare, free, listed] = bare_free_and_listed.map(|times| quantile(times, 0.5));
    println!(
        "`/bin/true` started from inside: bare {bare:.0} µs, `--read .` {free:.0} µs, with a list \
         of programs {listed:.0} µs ({:.2} ×; ≤ 1.3).",
        listed / free
    );
}

/// Many at once.
pub fn at_once(count: usize, bare: Vec<f64>, lnk: Vec<f64>) {
    let (bare, lnk) = (quantile(bare, 0.5), quantile(lnk, 0.5));
    println!(
        "{count} at once: bare {bare:.0} ms, `--read .` {lnk:.0} ms ({:.2} ×); none failed.",
        lnk / bare
    );
}

/// Calls of Link Run, each against a sandbox of its own.
pub fn calls(figures: &[run::Figures]) {
    println!(
        "| one `/bin/true`, request to answer | median ms | p10 | p90 | `lnk sandbox run` | × | paired | limit |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for run::Figures { name, call, alone } in figures {
        let paired = call.iter().zip(alone).map(|(call, alone)| call / alone).collect();
        let [median, p10, p90] = [0.5, 0.1, 0.9].map(|part| quantile(call.clone(), part));
        let alone = quantile(alone.clone(), 0.5);
        println!(
            "| {name} | {median:.2} | {p10:.2} | {p90:.2} | {alone:.2} | {:.2} | {:.2} | ≤ 1.3 |",
            median / alone,
            quantile(paired, 0.5),
        );
    }
    println!();
}

/// Many calls side by side.
pub fn calls_at_once(count: usize, figures: &run::Figures) {
    let call = quantile(figures.call.clone(), 0.5);
    let alone = quantile(figures.alone.clone(), 0.5);
    println!(
        "{count} calls side by side, {}: {call:.0} ms, `lnk sandbox run` {alone:.0} ms ({:.2} ×); \
         none failed.",
        figures.name,
        call / alone
    );
}

/// The ways to an origin, direct first, the bare relay second; ratios are medians
/// of the rounds' own.
pub fn ways(ways: &[Way], figures: &[Figures]) {
    println!(
        "| CONNECT tunnels a second (× direct) | 1 at a time | 16 | 64 | µs of one | \
         bulk GB/s (× direct) | round trip µs (× relay) | PSS MiB idle / 64 tunnels |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let (direct, relay) = (&figures[0], &figures[1]);
    for (way, its) in ways.iter().zip(figures) {
        let made = [0, 1, 2].map(|at| with_ratio(&its.made[at], &direct.made[at], 0));
        let memory = its.memory.map(|[idle, held]| format!("{idle:.1} / {held:.1}"));
        let fetched = its.fetched.iter().map(|bytes| bytes / 1e9).collect::<Vec<_>>();
        let fetched_directly = direct.fetched.iter().map(|bytes| bytes / 1e9).collect::<Vec<_>>();
        println!(
            "| {} | {} | {:.0} | {} | {} | {} |",
            way.name,
            made.join(" | "),
            quantile(its.one.clone(), 0.5),
            with_ratio(&fetched, &fetched_directly, 2),
            with_ratio(&its.round_trip, &relay.round_trip, 1),
            memory.unwrap_or_default()
        );
    }
    println!(
        "| must reach, the wire | ≥ .45, aim .55 | ≥ .70, aim .76 | ≥ .70, aim .73 | | ≥ .85, \
         aim 1.0 | ≤ 1.05 | ≤ 6 / 16, aim 4 / 10 |"
    );
}

/// The median, and that of the ratios.
fn with_ratio(values: &[f64], to: &[f64], digits: usize) -> String {
    let ratios = values.iter().zip(to).map(|(value, to)| value / to).collect();
    format!("{:.digits$} ({:.2})", quantile(values.to_vec(), 0.5), quantile(ratios, 0.5))
}

/// The value below which `part` of the values lie.
pub fn quantile(mut values: Vec<f64>, part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = ((values.len() - 1) as f64 * part).round() as usize;
    values[at]
}
