//! A command line that can't be read, told in one line: what is wrong, on what,
//! and what to write instead.

use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use lnk_sandbox::nearest::nearest;

/// Characters of a flag's beginning that tell which is meant, at least.
const SHORTEST_CUT: usize = "--lan".len();

/// What others call a flag, and its names here.
const CALLED_ELSEWHERE: [(&str, &[&str]); 10] = [
    ("--host", &HOSTS),
    ("--hosts", &HOSTS),
    ("--net", &HOSTS),
    ("--network", &HOSTS),
    ("--allow-net", &HOSTS),
    ("--allow-network", &HOSTS),
    ("--allow-host", &HOSTS),
    ("-f", &["--follow"]),
    ("--lines", &["-n"]),
    ("--tail", &["-n"]),
];
/// What others call a command of `lnk sandbox`, and what it is here.
const COMMANDS_ELSEWHERE: [(&str, &str); 6] = [
    ("unpause", "resume"),
    ("continue", "resume"),
    ("cont", "resume"),
    ("unstop", "stop --off"),
    ("start", "run' or 'lnk sandbox stop --off"),
    ("exec", "run"),
];
const HOSTS: [&str; 2] = ["--internet-host", "--lan-host"];

/// The line for an error of the parser.
pub fn line(error: &Error, root: &Command, args: &[OsString]) -> String {
    let (name, command) = command_meant(root, args);
    match error.kind() {
        ErrorKind::UnknownArgument => unknown_argument(error, &name, command),
        ErrorKind::InvalidSubcommand => help_meant(&name, root, args)
            .unwrap_or_else(|| unknown_command(error, &name, root, command)),
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            format!("no command given: '{name} -h' lists the commands")
        }
        ErrorKind::MissingRequiredArgument => missing(error, &name),
        ErrorKind::InvalidValue => invalid_value(error, &name),
        ErrorKind::ValueValidation if context(error, ContextKind::InvalidValue).is_empty() => {
            invalid_value(error, &name)
        }
        ErrorKind::ValueValidation => refused_value(error),
        ErrorKind::ArgumentConflict => conflict(error, &name),
        ErrorKind::TooManyValues => {
            format!("{} takes no value: write it alone", flag(error))
        }
        ErrorKind::InvalidUtf8 => {
            "a flag's value isn't UTF-8 text: only a path or a program may be other bytes".into()
        }
        _ => first_line(error),
    }
}

/// The command that the leading words name, and its whole name.
fn command_meant<'a>(root: &'a Command, args: &[OsString]) -> (String, &'a Command) {
    let (mut name, mut command) = (root.get_name().to_owned(), root);
    for word in args.iter().skip(1) {
        let Some(next) = word.to_str().and_then(|word| command.find_subcommand(word)) else {
            break;
        };
        name = format!("{name} {}", next.get_name());
        command = next;
    }
    (name, command)
}

fn unknown_argument(error: &Error, name: &str, command: &Command) -> String {
    let typed = context(error, ContextKind::InvalidArg);
    if !typed.starts_with('-') {
        return format!("'{typed}' is one word too many: see '{name} -h'");
    }
    let flags: Vec<String> = command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set())
        .filter_map(|arg| match (arg.get_long(), arg.get_short()) {
            (Some(long), _) => Some(format!("--{long}")),
            (None, short) => short.map(|short| format!("-{short}")),
        })
        .collect();
    match flags_meant(&typed, &flags).as_slice() {
        [] => format!("unknown flag {typed}: '{name} -h' lists the flags"),
        meant => format!("unknown flag {typed}: did you mean {}?", meant.join(" or ")),
    }
}

/// The flags of these that another name seems to mean: mistyped, cut short, or as
/// other tools have it.
fn flags_meant<'f>(typed: &str, flags: &'f [String]) -> Vec<&'f str> {
    let flags = || flags.iter().map(String::as_str);
    if let Some(nearest) = nearest(typed, flags()) {
        return vec![nearest];
    }
    let elsewhere = CALLED_ELSEWHERE.iter().find(|(other, _)| *other == typed);
    let ours = elsewhere.map_or(&[][..], |(_, ours)| *ours);
    let is_cut = |flag: &str| typed.len() >= SHORTEST_CUT && flag.starts_with(typed);
    flags().filter(|flag| ours.contains(flag) || is_cut(flag)).collect()
}

fn unknown_command(error: &Error, name: &str, root: &Command, command: &Command) -> String {
    let typed = context(error, ContextKind::InvalidSubcommand);
    let elsewhere = COMMANDS_ELSEWHERE.iter().find(|(other, _)| *other == typed);
    if let Some((_, ours)) = elsewhere {
        return format!("unknown command '{typed}': did you mean 'lnk sandbox {ours}'?");
    }
    match named_here(name, command, &typed).or_else(|| named_below(root, &typed)) {
        Some(meant) => format!("unknown command '{typed}': did you mean '{meant}'?"),
        None => format!("unknown command '{typed}': '{name} -h' lists the commands"),
    }
}

/// For `lnk sandbox help run`, which is `lnk sandbox run --help`.
fn help_meant(name: &str, root: &Command, args: &[OsString]) -> Option<String> {
    let at = args.iter().position(|word| word == "help")?;
    let without: Vec<OsString> = [&args[..at], &args[at + 1..]].concat();
    let is_next = name.split(' ').count() == at;
    let (meant, _) = command_meant(root, &without);
    is_next.then(|| format!("unknown command 'help': did you mean '{meant} --help'?"))
}

fn named_here(name: &str, command: &Command, typed: &str) -> Option<String> {
    nearest(typed, visible(command)).map(|meant| format!("{name} {meant}"))
}

/// For `lnk run`, which is `lnk sandbox run`.
fn named_below(root: &Command, typed: &str) -> Option<String> {
    root.get_subcommands().find_map(|group| {
        named_here(&format!("{} {}", root.get_name(), group.get_name()), group, typed)
    })
}

fn visible(command: &Command) -> impl Iterator<Item = &str> {
    command.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name)
}

fn missing(error: &Error, name: &str) -> String {
    let what = context(error, ContextKind::InvalidArg);
    if what.starts_with("--spec ") {
        return "--yes agrees to what a spec opens, and no spec is given: add --spec FILE, or leave \
                it out"
            .into();
    }
    if what.contains("PROGRAM") {
        return format!("no program to run: write it after --, as in '{name} --write . -- bash'");
    }
    format!("{what} is missing: see '{name} -h'")
}

fn invalid_value(error: &Error, name: &str) -> String {
    let arg = context(error, ContextKind::InvalidArg);
    let value = context(error, ContextKind::InvalidValue);
    if value.is_empty() {
        let (flag, value_name) = arg.split_once(' ').unwrap_or((&arg, "<VALUE>"));
        let value_name = value_name.trim_matches(['<', '>']);
        return format!("{flag} needs {}: {flag} {value_name}", with_article(value_name));
    }
    match context(error, ContextKind::ValidValue).as_str() {
        "" => format!("'{value}' is no value for {arg}: see '{name} -h'"),
        valid => format!("'{value}' is no value for {arg}: it is one of {valid}"),
    }
}

/// A value by its name in help: `PATH`, `UPSTREAM`, `LINES`.
fn with_article(value_name: &str) -> String {
    let name = value_name.to_lowercase();
    match name.as_bytes() {
        [.., b's'] => format!("a number of {name}"),
        [b'a' | b'e' | b'i' | b'o' | b'u', ..] => format!("an {name}"),
        _ => format!("a {name}"),
    }
}

/// A value that isn't possible: the flag, and the sentence of its type.
fn refused_value(error: &Error) -> String {
    std::error::Error::source(error)
        .map_or_else(|| first_line(error), |why| format!("{}: {why}", flag(error)))
}

/// A flag that can be given once, or not beside another one.
fn conflict(error: &Error, name: &str) -> String {
    let (flag, prior) = (flag(error), context(error, ContextKind::PriorArg));
    let prior = prior.split(' ').next().unwrap_or_default();
    if prior == flag {
        return format!("{flag} is given twice: keep one of them");
    }
    format!("{flag} can't stand beside {prior}: see '{name} -h'")
}

/// The flag that an error is about, without the name of its value.
fn flag(error: &Error) -> String {
    let arg = context(error, ContextKind::InvalidArg);
    arg.split(' ').next().unwrap_or_default().to_owned()
}

fn context(error: &Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        _ => String::new(),
    }
}

fn first_line(error: &Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}
