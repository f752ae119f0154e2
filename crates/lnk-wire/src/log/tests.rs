use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::{iter, thread};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::traffic::Traffic;

fn log(folder: &TempDir, name: &str) -> Log {
    let sandbox = Sandbox { name: name.into(), spec: None, spec_path: None };
    Log::open(folder.path(), sandbox, Arc::new(Traffic::start())).unwrap()
}

fn all(folder: &TempDir) -> Vec<Record> {
    read_last(folder.path(), usize::MAX, &Filter::default()).unwrap()
}

fn hosts(records: &[Record]) -> Vec<&str> {
    records.iter().map(|record| record.line.host.as_deref().unwrap_or_default()).collect()
}

fn append(folder: &Path, bytes: &[u8]) {
    let mut file = fs::OpenOptions::new().append(true).open(folder.join(FILE)).unwrap();
    file.write_all(bytes).unwrap();
}

/// Makes the file full, but for a line, by nothing that is one.
fn fill(folder: &Path) {
    let file = fs::OpenOptions::new().write(true).open(folder.join(FILE)).unwrap();
    file.set_len(FULL - 1).unwrap();
}

#[test]
fn a_calls_lines_say_what_happened_and_share_its_number() {
    let folder = tempfile::tempdir().unwrap();
    let traffic = Arc::new(Traffic::start());
    let spec_path = Some("/app.toml".into());
    let sandbox = Sandbox { name: "run-7".into(), spec: Some("app".into()), spec_path };
    let log = Log::open(folder.path(), sandbox, Arc::clone(&traffic)).unwrap();
    let call = log.call(Verb::Connect, "example.com", 443);
    log.allowed(&call).unwrap();
    log.ended(&call, 517, 4096);
    log.refused(&log.call(Verb::Dns, "x.test", None), "x.test isn't named");
    log.failed(&log.call(Verb::LocalModel, "127.0.0.1", 11434), "nothing listens");
    log.refused(&log.event(Verb::Pause), "30 calls refused within a minute");

    let text = fs::read_to_string(folder.path().join(FILE)).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("{\"time\":\"20"), "{text}");
    assert!(
        lines[0].contains(r#"Z","sandbox":"run-7","spec":"app","spec_path":"/app.toml","call":"#),
        "{text}"
    );
    let ends = [
        r#""verb":"connect","host":"example.com","port":443,"what":"allowed"}"#,
        r#""verb":"connect","host":"example.com","port":443,"what":"ended","up":517,"down":4096,"ms":0}"#,
        r#""verb":"dns","host":"x.test","what":"refused","reason":"x.test isn't named"}"#,
        r#""verb":"local-model","host":"127.0.0.1","port":11434,"what":"failed","reason":"nothing listens"}"#,
        r#""verb":"pause","what":"refused","reason":"30 calls refused within a minute"}"#,
    ];
    for (line, end) in lines.iter().zip(ends) {
        let zero = |ms: &str| format!("{}\"ms\":0}}", &line[..line.find(ms).unwrap()]);
        let line = if line.contains("\"ms\":") { zero("\"ms\":") } else { (*line).to_owned() };
        assert!(line.ends_with(end), "{line}");
    }
    let calls: Vec<_> = all(&folder).iter().map(|record| record.line.call).collect();
    assert!(calls[0] == calls[1] && calls[1] < calls[2] && calls[2] < calls[3], "{calls:?}");
    let carried = traffic.carried();
    assert_eq!((carried.allowed, carried.refused, carried.failed), (1, 2, 1));
    let mode = fs::metadata(folder.path().join(FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn of_an_unreadable_target_no_path_and_no_password_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let log = log(&folder, "run-1");
    let targets: &[(&[u8], &str)] = &[
        (b"http://a b/secret", ""),
        (b"http://127.1:80/secret?token", "127.1:80"),
        (b"127.1:443", "127.1:443"),
        (b"http://[::1]:80/secret", "[::1]:80"),
        (b"user:secret@127.1:443", ""),
        (b"user:secret", ""),
        (b"https:user:secret", ""),
        (b"data:secret,x", ""),
        (b"secret-noslash", ""),
        (b"/cb?redirect=https://secret.example/", ""),
        (b"/p/tok://SECRET", ""),
        (b"http://origin.example;token=secret/", ""),
        (b"http://user:sec/ret@host/", ""),
        (b"/secret", ""),
        (b"?secret", ""),
        (b"host%2fsecret", ""),
        (b"host\\secret", ""),
        (b"", ""),
        (b"\x1b[2J\xff", ""),
        ("a\u{202e}b:80".as_bytes(), "a\\u{202e}b:80"),
    ];
    for (target, shown) in targets {
        log.refused(&log.unknown_call(target), "not a host");
        let records = all(&folder);
        let last = &records.last().unwrap().line;
        assert_eq!(last.host.as_deref().unwrap_or_default(), *shown, "{}", target.escape_ascii());
        assert_eq!(last.verb, Verb::Unknown);
    }
}

#[test]
fn half_a_line_costs_no_other_line() {
    let folder = tempfile::tempdir().unwrap();
    let log = log(&folder, "run-1");
    log.allowed(&log.call(Verb::Http, "first", 80)).unwrap();
    append(folder.path(), b"{\"time\":\"2026-01-01T00:00:00.000Z\",\"sandb");
    log.allowed(&log.call(Verb::Http, "second", 80)).unwrap();
    let text = fs::read_to_string(folder.path().join(FILE)).unwrap();
    assert!(text.contains("\"sandb\n{\"time\":"), "{text}");
    // Two at once: the one was killed after the other had looked at the end.
    let whole = fs::read(folder.path().join(FILE)).unwrap();
    let last = whole.split_inclusive(|byte| *byte == b'\n').next_back().unwrap();
    append(folder.path(), b"{\"time\":\"2026-01-01T00:00:00.000Z\",\"sandbox\":\"run-{\\\"time");
    append(folder.path(), last);
    append(folder.path(), b"\n\nnonsense\n\xff\n{}\n");
    log.allowed(&log.call(Verb::Http, "third", 80)).unwrap();
    assert_eq!(hosts(&all(&folder)), ["first", "second", "second", "third"]);
    assert_eq!(log.left_out(), 0);
}

#[test]
fn no_line_is_lost_by_many_who_write_while_files_are_renamed() {
    const WRITERS: usize = 8;
    const CALLS: usize = 2600;
    let folder = tempfile::tempdir().unwrap();
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let log = log(&folder, &format!("run-{writer}"));
            scope.spawn(move || {
                let reason = "x".repeat(MAX_REASON);
                for number in 0..CALLS {
                    log.broke(&log.call(Verb::Http, number, 80), &reason, 0, 0);
                }
                assert_eq!(log.left_out(), 0);
            });
        }
    });
    let files: Vec<_> = iter::once(FILE.to_owned())
        .chain((1..=KEPT).map(write::kept))
        .filter(|name| folder.path().join(name).exists())
        .collect();
    assert!(files.len() >= 3, "{files:?}");
    for name in &files[1..] {
        let length = fs::metadata(folder.path().join(name)).unwrap().len();
        assert!((FULL..FULL + 100_000).contains(&length), "{name}: {length}");
    }
    let records = all(&folder);
    for writer in 0..WRITERS {
        let name = format!("run-{writer}");
        let of_writer = records.iter().filter(|record| record.line.sandbox.name == name);
        let mut numbers: Vec<usize> =
            of_writer.map(|record| record.line.host.as_ref().unwrap().parse().unwrap()).collect();
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(0..CALLS), "{name}: {}", numbers.len());
    }
}

#[test]
fn nine_full_files_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let log = log(&folder, "run-1");
    for round in 0..12 {
        log.allowed(&log.call(Verb::Http, round, 80)).unwrap();
        fill(folder.path());
        log.allowed(&log.call(Verb::Http, format!("{round}-end"), 80)).unwrap();
    }
    let kept: Vec<_> =
        (3..12).flat_map(|round| [format!("{round}"), format!("{round}-end")]).collect();
    assert_eq!(hosts(&all(&folder)), kept);
    assert_eq!(fs::metadata(folder.path().join(FILE)).unwrap().len(), 0);
    // A gap is filled before the oldest goes.
    fs::remove_file(folder.path().join(write::kept(4))).unwrap();
    log.allowed(&log.call(Verb::Http, "new", 80)).unwrap();
    fill(folder.path());
    log.allowed(&log.call(Verb::Http, "new-end", 80)).unwrap();
    let records = all(&folder);
    assert_eq!(hosts(&records)[..2], ["3", "3-end"]);
    assert_eq!(hosts(&records)[16..], ["new", "new-end"]);
}

#[test]
fn a_call_whose_line_cant_be_written_isnt_let_through() {
    let folder = tempfile::tempdir().unwrap();
    let traffic = Arc::new(Traffic::start());
    let sandbox = Sandbox { name: "run-1".into(), spec: None, spec_path: None };
    let log = Log::open(folder.path(), sandbox, Arc::clone(&traffic)).unwrap();
    let call = |host: &str| log.call(Verb::Http, host, 80);
    log.allowed(&call("first")).unwrap();
    fs::rename(folder.path().join(FILE), folder.path().join("aside")).unwrap();
    fs::create_dir(folder.path().join(FILE)).unwrap();
    assert!(log.allowed(&call("second")).is_err());
    log.refused(&call("second"), "no");
    assert_eq!((traffic.carried().allowed, log.left_out()), (1, 2));
    fs::remove_dir(folder.path().join(FILE)).unwrap();
    log.allowed(&call("third")).unwrap();
    assert_eq!((hosts(&all(&folder)), log.left_out()), (vec!["third"], 2));
}

#[test]
fn who_is_turned_away_on_and_on_gets_a_thousand_lines_a_minute_and_one_for_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let traffic = Arc::new(Traffic::start());
    let sandbox = Sandbox { name: "run-1".into(), spec: None, spec_path: None };
    let log = Log::open(folder.path(), sandbox, Arc::clone(&traffic)).unwrap();
    for number in 0..1400 {
        let call = log.call(Verb::Http, number, 80);
        log.turned_away(&call, "no");
        // Those for which somebody was asked each have theirs.
        log.refused(&call, "not there");
        log.failed(&call, "nobody");
        log.allowed(&call).unwrap();
        log.broke(&call, "gone", 7, 0);
    }
    let carried = traffic.carried();
    assert_eq!((carried.allowed, carried.refused, carried.failed), (1400, 2800, 2800));
    let reasons = |folder: &TempDir| -> Vec<String> {
        let reason = |record: &Record| match &record.line.what {
            What::Refused { reason } | What::Failed { reason, .. } => Some(reason.clone()),
            _ => None,
        };
        all(folder).iter().filter_map(reason).collect()
    };
    let told = reasons(&folder);
    let count = |of: &str| told.iter().filter(|one| *one == of).count();
    assert_eq!(["no", "not there", "nobody", "gone"].map(count), [1000, 1400, 1400, 1400]);
    drop(log);
    assert_eq!(reasons(&folder).pop().unwrap(), "400 more calls were refused within a minute");
}

/// Without room for them, a program that fills the disk would end the log.
#[test]
fn the_room_of_this_file_and_the_next_is_kept() {
    use std::os::unix::fs::MetadataExt as _;
    let folder = tempfile::tempdir().unwrap();
    let log = log(&folder, "run-1");
    let kept = |name: &str| fs::metadata(folder.path().join(name)).unwrap().blocks() * 512;
    assert!(kept(FILE) >= FULL && kept("wire.log.next") >= FULL);
    for round in 0..3 {
        log.allowed(&log.call(Verb::Http, format!("{round}"), 80)).unwrap();
        fill(folder.path());
        log.allowed(&log.call(Verb::Http, format!("{round}-end"), 80)).unwrap();
        assert!(kept(FILE) >= FULL && kept("wire.log.next") >= FULL, "{round}");
    }
    assert_eq!(hosts(&all(&folder)), ["0", "0-end", "1", "1-end", "2", "2-end"]);
    // Killed between the two renames.
    let path = |name: &str| folder.path().join(name);
    fs::remove_file(path("wire.log.next")).unwrap();
    fs::rename(path("wire.log.1"), path("wire.log.next")).unwrap();
    assert_eq!(hosts(&all(&folder)), ["0", "0-end", "1", "1-end", "2", "2-end"]);
    log.allowed(&log.call(Verb::Http, "3", 80)).unwrap();
    fill(folder.path());
    log.allowed(&log.call(Verb::Http, "3-end", 80)).unwrap();
    assert_eq!(hosts(&all(&folder)), ["0", "0-end", "1", "1-end", "2", "2-end", "3", "3-end"]);
}

#[test]
fn only_a_plain_file_is_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let sandbox = || Sandbox { name: "run-1".into(), spec: None, spec_path: None };
    let open = || Log::open(folder.path(), sandbox(), Arc::new(Traffic::start())).map(drop);
    std::os::unix::fs::symlink("elsewhere", folder.path().join(FILE)).unwrap();
    assert!(open().is_err() && !folder.path().join("elsewhere").exists());
    fs::remove_file(folder.path().join(FILE)).unwrap();
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mknodat(
        rustix::fs::CWD,
        folder.path().join(FILE),
        rustix::fs::FileType::Fifo,
        mode,
        0,
    )
    .unwrap();
    assert!(open().is_err());
    fs::remove_file(folder.path().join(FILE)).unwrap();
    open().unwrap();
}

#[test]
fn the_latest_are_read_and_only_those_that_are_meant() {
    let folder = tempfile::tempdir().unwrap();
    assert!(all(&folder).is_empty());
    let log_of = |name: &str, spec: Option<&str>| {
        let spec_path = spec.map(|spec| format!("/{spec}.toml"));
        let sandbox = Sandbox { name: name.into(), spec: spec.map(str::to_owned), spec_path };
        Log::open(folder.path(), sandbox, Arc::new(Traffic::start())).unwrap()
    };
    let (one, two) = (log_of("run-1", None), log_of("run-2", Some("app")));
    for number in 0..4 {
        one.allowed(&one.call(Verb::Http, format!("a{number}"), 80)).unwrap();
        two.refused(&two.call(Verb::Http, format!("b{number}"), 80), "no");
        if number == 1 {
            fill(folder.path());
            one.refused(&one.call(Verb::Http, "middle", 80), "no");
        }
    }
    assert!(folder.path().join(write::kept(1)).exists());
    let read = |most, sandbox: Option<&str>, refused| {
        let sandbox = sandbox.map(str::to_owned);
        // What has a slash is a path.
        let (path, name) = sandbox.into_iter().partition::<Vec<_>, _>(|it| it.contains('/'));
        let spec_path = path.into_iter().next().map(Into::into);
        let filter = Filter { sandbox: name.into_iter().next(), spec_path, refused };
        let records = read_last(folder.path(), most, &filter).unwrap();
        hosts(&records).join(" ")
    };
    assert_eq!(read(3, None, false), "b2 a3 b3");
    assert_eq!(read(7, None, false), "a1 b1 middle a2 b2 a3 b3");
    assert_eq!(read(0, None, false), "");
    assert_eq!(read(9, Some("run-1"), false), "a0 a1 middle a2 a3");
    assert_eq!(read(9, Some("app"), false), "b0 b1 b2 b3");
    assert_eq!(read(9, Some("/app.toml"), false), "b0 b1 b2 b3");
    assert_eq!(read(9, Some("/app"), false), "");
    assert_eq!(read(9, Some("run-1"), true), "middle");
    assert_eq!(read(9, Some("run"), false), "");
    assert_eq!(sandboxes(folder.path()).unwrap(), ["run-2", "app", "run-1"]);
}

#[test]
fn what_follows_is_read_once_through_renamed_files() {
    let folder = tempfile::tempdir().unwrap();
    let (none, mut from_nothing) = Follow::open(folder.path(), 9, Filter::default()).unwrap();
    assert!(none.is_empty() && from_nothing.read().unwrap().is_empty());
    let log = log(&folder, "run-1");
    log.allowed(&log.call(Verb::Http, "old", 80)).unwrap();
    append(folder.path(), b"{\"time\":");
    let (latest, mut follow) = Follow::open(folder.path(), 9, Filter::default()).unwrap();
    assert_eq!(hosts(&latest), ["old"]);
    let mut next = || hosts(&follow.read().unwrap()).join(" ");
    assert_eq!(next(), "");
    log.allowed(&log.call(Verb::Http, "one", 80)).unwrap();
    assert_eq!(next(), "one");
    append(folder.path(), b"{\"time\":");
    assert_eq!(next(), "");
    for round in 0..2 {
        log.allowed(&log.call(Verb::Http, format!("begin{round}"), 80)).unwrap();
        fill(folder.path());
        log.allowed(&log.call(Verb::Http, format!("end{round}"), 80)).unwrap();
    }
    log.allowed(&log.call(Verb::Http, "new", 80)).unwrap();
    assert_eq!(next(), "begin0 end0 begin1 end1 new");
    assert_eq!(next(), "");
    let records = from_nothing.read().unwrap();
    assert_eq!(hosts(&records).join(" "), "old one begin0 end0 begin1 end1 new");
}

fn moved() -> impl Strategy<Value = Moved> {
    (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(up, down, ms)| Moved { up, down, ms })
}

fn any_line() -> impl Strategy<Value = Line> {
    let what = prop_oneof![
        Just(What::Allowed),
        moved().prop_map(What::Ended),
        any::<String>().prop_map(|reason| What::Refused { reason }),
        "[\"\\\\]{0,2000}".prop_flat_map(|reason| {
            proptest::option::of(moved())
                .prop_map(move |carried| What::Failed { reason: reason.clone(), carried })
        }),
    ];
    let text = || prop_oneof![any::<String>(), "[\"\\\\]{0,2000}", "\\PC{0,500}"];
    let maybe = || proptest::option::of(text());
    ((text(), maybe(), maybe()), any::<u64>(), maybe(), what).prop_map(
        |((name, spec, spec_path), call, host, what)| Line {
            time: Timestamp::UNIX_EPOCH,
            sandbox: Sandbox { name, spec, spec_path },
            call,
            verb: Verb::Unknown,
            host,
            port: Some(1),
            what,
        },
    )
}

proptest! {
    #[test]
    fn whatever_a_line_holds_it_is_one_short_line_that_is_read_again(line in any_line()) {
        let written = line.written();
        prop_assert!(written.len() <= MAX_LINE);
        prop_assert!(!written[..written.len() - 1].iter().any(u8::is_ascii_control));
        let read: Vec<_> = records(&written).collect();
        prop_assert_eq!(read.len(), 1);
        prop_assert_eq!(read[0].text.as_bytes(), &written[..written.len() - 1]);
        prop_assert_eq!(read[0].line.clone().written(), written);
    }

    #[test]
    fn lines_are_found_among_anything(
        parts in prop::collection::vec((any_line(), prop::collection::vec(any::<u8>(), 0..40), any::<prop::sample::Index>()), 0..8)
    ) {
        let mut file = Vec::new();
        let mut whole = Vec::new();
        for (line, rubbish, cut) in parts {
            let line = line.written();
            // Half a line, anything, then a whole line.
            file.extend(&line[..cut.index(line.len() - 1)]);
            file.extend(rubbish);
            file.extend(&line);
            whole.push(String::from_utf8(line[..line.len() - 1].to_vec()).unwrap());
        }
        let texts: Vec<_> = records(&file).map(|record| record.text).collect();
        // The rubbish is random: it may not be a line of its own.
        prop_assert_eq!(texts, whole);
    }
}
