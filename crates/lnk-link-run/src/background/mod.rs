//! Commands that run on after the call that started them.
//!
//! Their records are on disk (`store.rs`), so that one that is lost with its server is
//! told of by the next one. A conversation reaches its own commands alone.

mod output;
mod record;
mod store;
pub mod tools;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use lnk_sandbox::shown::{escaped, escaped_name, reason, word};
use tokio::net::unix::pipe;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};

use self::output::{Extent, Folder, Output, Piece};
use self::record::{Conversation, Ended, How, Record, command_line, new_id, now};
use self::store::{Locked, Store};
use crate::call::{Call, End, Running, Streams};
use crate::events::{ENDED, Event, Sink};
use crate::limits::{Limits, Time};
use crate::place::Place;
use crate::quoted::cut;

/// How soon what failed is tried again: a harness that isn't there, a full disk.
const AGAIN: Duration = Duration::from_secs(10);
/// How long an answer to `start` waits to see whether the command could run at all.
const EARLY: Duration = Duration::from_millis(500);
/// How often records whose time is over are looked for.
const SWEEP: Duration = Duration::from_secs(60 * 60);
/// How long, in milliseconds, an end stays that nobody can be told of.
const UNTOLD: u64 = 30 * 24 * 60 * 60 * 1000;
/// Bytes of the output's end that are told with a command's.
const TAIL: usize = 2048;
/// Bytes of a conversation's name.
const NAMES: RangeInclusive<usize> = 1..=200;

/// The background commands of one conversation, and the room for all of the place's.
pub struct Background {
    place: Place,
    limits: Limits,
    conversation: Conversation,
    store: Store,
    folder: Folder,
    /// Commands that this server runs.
    live: RefCell<BTreeMap<String, Rc<Live>>>,
    /// Versions of records that couldn't be written yet.
    unwritten: RefCell<BTreeMap<String, Record>>,
    /// Ends that the agent isn't told of yet.
    untold: RefCell<BTreeMap<String, Untold>>,
    /// There is something new to tell.
    news: Notify,
    /// Whether a harness is told of ends.
    has_harness: bool,
    /// The command whose start is about to be answered.
    just_started: RefCell<Option<String>>,
}

/// A command that runs.
struct Live {
    started: Instant,
    output: RefCell<Output>,
    stop: Notify,
    ended: watch::Sender<bool>,
}

/// How far an end was told.
#[derive(Clone, Copy, Default)]
struct Untold {
    is_logged: bool,
    /// The harness is being given it, or an answer that has it is being written.
    is_on_its_way: bool,
}

/// The ends that one answer tells of. They are told once it was written out; where this
/// is dropped before, they are still to be told.
pub struct Telling {
    background: Rc<Background>,
    ids: Vec<String>,
}

impl Telling {
    /// What the agent is to be told of before anything else: the ends of commands that it
    /// wasn't told of yet.
    pub fn news(&mut self) -> Option<String> {
        let background = self.background.clone();
        // Its end doesn't stand before the answer that it has started.
        let just_started = background.just_started.take();
        let mut messages = Vec::new();
        for (id, record) in background.still_untold() {
            if Some(&id) == just_started.as_ref() {
                continue;
            }
            messages.push(background.message(&record));
            self.add(id);
        }
        (!messages.is_empty()).then(|| messages.join("\n\n"))
    }

    fn add(&mut self, id: String) {
        self.background.set(&id, |untold| untold.is_on_its_way = true);
        self.ids.push(id);
    }

    /// Whether it tells of none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The answer was written out.
    pub fn is_told(mut self) {
        for id in std::mem::take(&mut self.ids) {
            self.background.has_told(&id);
        }
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        for id in &self.ids {
            self.background.set(id, |untold| untold.is_on_its_way = false);
        }
        if !self.ids.is_empty() {
            self.background.news.notify_one();
        }
    }
}

impl Background {
    /// Opens the records in a folder of Link's settings, and the place's `background/`,
    /// both of which are there. Commands of servers that are gone are lost from now on.
    ///
    /// `has_harness` tells whether a harness is told of ends, by [`Background::tell`].
    /// With a conversation's name, what it started earlier is found again. Without, the
    /// process is the conversation; what the agent wasn't told of by another such one
    /// that is gone is this one's to tell.
    ///
    /// # Errors
    /// A line that names the folder, or a conversation that is nothing or too long.
    pub fn open(
        place: Place,
        limits: Limits,
        records: &Path,
        conversation: Option<String>,
        has_harness: bool,
    ) -> Result<Rc<Background>, String> {
        if let Some(name) = conversation.as_ref().filter(|it| !NAMES.contains(&it.len())) {
            return Err(format!("--conversation {}: give one of 1 to 200 bytes", word(name)));
        }
        let store = Store::open(records).map_err(failed(records))?;
        let folder = Folder::open(&place.background()).map_err(failed(&place.background()))?;
        let conversation =
            conversation.map_or(Conversation::Server(store.server.clone()), Conversation::Named);
        let background = Background {
            place,
            limits,
            conversation,
            store,
            folder,
            live: RefCell::default(),
            unwritten: RefCell::default(),
            untold: RefCell::default(),
            news: Notify::new(),
            has_harness,
            just_started: RefCell::default(),
        };
        background.take_over().map_err(failed(records))?;
        background.sweep();
        Ok(Rc::new(background))
    }

    /// Marks what was lost, and finds what is to be told.
    fn take_over(&self) -> io::Result<()> {
        let locked = self.store.lock()?;
        for mut record in self.store.records()? {
            if self.unwritten.borrow().contains_key(&record.id) {
                continue;
            }
            let before = record.clone();
            let is_gone = |server: &str| !locked.is_alive(server);
            if record.end.is_none() && is_gone(&record.server) {
                record.end = Some(Ended::lost());
            }
            let is_orphan = match (&record.conversation, &self.conversation) {
                (Conversation::Server(server), Conversation::Server(_)) => is_gone(server),
                _ => false,
            };
            if is_orphan && record.end.is_some() && record.told.is_none() {
                record.conversation = self.conversation.clone();
            }
            if record != before {
                self.write_down(&locked, &record);
            }
            if record.conversation == self.conversation
                && record.end.is_some()
                && record.told.is_none()
            {
                self.untold.borrow_mut().entry(record.id).or_default();
            }
        }
        locked.forget_servers();
        Ok(())
    }

    /// Removes what has been told long enough ago.
    fn sweep(&self) {
        let keep = u64::try_from(self.limits.background_keep.as_millis()).unwrap_or(u64::MAX);
        let is_over = |record: &Record| {
            let Some(end) = &record.end else { return false };
            let since = |then: u64| now().saturating_sub(then);
            since(end.at) >= UNTOLD || record.told.is_some_and(|told| since(told) >= keep)
        };
        let Ok(locked) = self.store.lock() else { return };
        for record in self.store.records().unwrap_or_default().iter().filter(|it| is_over(it)) {
            // One whose output stays is found again.
            if self.folder.remove(&record.id).is_ok() {
                locked.remove(&record.id);
                self.untold.borrow_mut().remove(&record.id);
            }
        }
    }

    /// Starts a command, and answers with its id as soon as it prints something or has
    /// had half a second, in which one that can't run is found out.
    ///
    /// # Errors
    /// A line for a limit that is reached, and for what can't be started.
    pub async fn start(self: &Rc<Self>, call: &Call) -> Result<String, String> {
        let unwritable = |error| {
            format!("nothing was started, as its record can't be written: {}", reason(&error))
        };
        let locked = self.store.lock().map_err(unwritable)?;
        let mut starts = locked.starts().map_err(unwritable)?;
        self.refuse_more(&locked, starts.len())?;

        let record = Record {
            id: new_id().map_err(unwritable)?,
            conversation: self.conversation.clone(),
            server: self.store.server.clone(),
            command: command_line(&call.program, &call.args),
            started: now(),
            end: None,
            told: None,
            dropped: 0,
            unkept: 0,
            why_unkept: None,
        };
        let id = record.id.clone();
        starts.push(record.started);
        let begin = || {
            locked.add(&record).map_err(unwritable)?;
            locked.set_starts(&starts).map_err(unwritable)?;
            let file = self.folder.create(&id).map_err(|error| {
                format!(
                    "nothing was started, as background/{id}.out can't be made: {}",
                    reason(&error)
                )
            })?;
            Ok((call.start(&self.place, Streams::Merged)?, file))
        };
        let (running, file) = begin().inspect_err(|_: &String| self.forget(&locked, &record))?;
        drop(locked);

        let live = Rc::new(Live {
            started: Instant::now(),
            output: RefCell::new(Output::new(file, self.limits.background_output)),
            stop: Notify::new(),
            ended: watch::Sender::new(false),
        });
        self.live.borrow_mut().insert(id.clone(), live.clone());
        let (runs, is_running) = oneshot::channel();
        // Whoever gives the answer up doesn't end the command.
        tokio::task::spawn_local(self.clone().run(record, running, live, runs));
        if let Ok(Err(why)) = is_running.await {
            return Err(format!("not run: {why}"));
        }
        self.just_started.replace(Some(id.clone()));
        Ok(format!(
            "started {id}: its output is read with read, and in background/{id}.out; stop ends it, \
             and so does its time after {}. {}",
            Time(self.limits.background_timeout),
            tools::promise(self.has_harness)
        ))
    }

    /// What never ran counts nowhere.
    fn forget(&self, locked: &Locked<'_>, record: &Record) {
        locked.remove(&record.id);
        let _ = self.folder.remove(&record.id);
        let Ok(mut starts) = locked.starts() else { return };
        if let Some(at) = starts.iter().position(|start| *start == record.started) {
            starts.remove(at);
            let _ = locked.set_starts(&starts);
        }
    }

    /// A command's life, of which `runs` hears whether it could run.
    async fn run(
        self: Rc<Self>,
        record: Record,
        mut running: Running,
        live: Rc<Live>,
        runs: oneshot::Sender<Result<(), String>>,
    ) {
        let early = tokio::select! {
            biased;
            end = running.supervisor.ended() => {
                end.failed.map(|why| [vec![why], end.notices].concat().join("\n"))
            }
            _ = running.stdout.readable() => None,
            () = live.stop.notified() => {
                live.stop.notify_one();
                None
            }
            () = sleep(EARLY) => None,
        };
        // Without the lock it stays, as one that couldn't run.
        if let Some(why) = early
            && let Ok(locked) = self.store.lock()
        {
            self.forget(&locked, &record);
            self.live.borrow_mut().remove(&record.id);
            live.ended.send_replace(true);
            let _ = runs.send(Err(why));
            return;
        }
        let _ = runs.send(Ok(()));
        self.follow(record, running, live).await;
    }

    fn refuse_more(&self, locked: &Locked<'_>, started: usize) -> Result<(), String> {
        let records = self.store.records().map_err(failed("the records"))?;
        let unwritten = self.unwritten.borrow();
        let runs = |record: &&Record| {
            record.end.is_none()
                && locked.is_alive(&record.server)
                && !unwritten.contains_key(&record.id)
        };
        let Limits { background, background_per_day, .. } = self.limits;
        if records.iter().filter(runs).count() >= background {
            return Err(format!(
                "{background} background commands run already, which is as many as may: stop one, or \
                 start this one when one has ended"
            ));
        }
        if started >= background_per_day {
            return Err(format!(
                "{background_per_day} background commands have started within 24 hours, which is as \
                 many as may: run this one with command, or later"
            ));
        }
        Ok(())
    }

    /// A command's life from then on.
    async fn follow(self: Rc<Self>, mut record: Record, running: Running, live: Rc<Live>) {
        let Running { stdout, mut supervisor, .. } = running;
        let deadline = live.started + self.limits.background_timeout;
        let ending = async {
            let how = tokio::select! {
                end = supervisor.ended() => return (How::of(&end), end.notices),
                () = sleep_until(deadline) => How::TimedOut,
                () = live.stop.notified() => How::Stopped,
            };
            let End { notices, .. } = supervisor.end().await;
            (how, notices)
        };
        let (how, notices) = {
            let mut ending = pin!(ending);
            loop {
                tokio::select! {
                    ended = &mut ending => break ended,
                    // At the end of the output there is nothing to keep, only the end to wait for.
                    dropped = keep(&stdout, &live.output) => match dropped {
                        Some(true) => {
                            record.dropped = live.output.borrow().extent().dropped;
                            self.write(&record);
                        }
                        Some(false) => {}
                        None => break ending.await,
                    },
                }
            }
        };
        while let Some(Some(bytes)) = read_now(&stdout) {
            live.output.borrow_mut().push(&bytes);
        }
        self.has_ended(record, &live, Ended::now(how, live.started.elapsed(), notices));
    }

    fn has_ended(&self, mut record: Record, live: &Live, end: Ended) {
        {
            let mut output = live.output.borrow_mut();
            output.finish();
            record.dropped = output.extent().dropped;
            record.unkept = output.extent().unkept;
            record.why_unkept = output.why_unkept().map(str::to_owned);
        }
        // Of one that was stopped the answer to that tells.
        let is_on_its_way = end.how == How::Stopped;
        record.end = Some(end);
        let id = record.id.clone();
        self.write(&record);
        self.live.borrow_mut().remove(&id);
        self.untold.borrow_mut().insert(id, Untold { is_on_its_way, ..Untold::default() });
        live.ended.send_replace(true);
        if !is_on_its_way {
            self.news.notify_one();
        }
    }

    /// Each command of the conversation, a line each.
    ///
    /// # Errors
    /// A line for records that can't be read.
    pub fn list(&self) -> Result<String, String> {
        // Another server of the conversation may have gone.
        let _ = self.take_over();
        let records = self.store.records().map_err(failed("the records"))?;
        let lines: Vec<_> = records
            .into_iter()
            .filter(|record| record.conversation == self.conversation)
            .map(|record| self.newest(record))
            .map(|record| {
                let bytes = match self.extent(&record) {
                    Ok(extent) => format!("{} bytes of output", extent.total()),
                    Err(why) => why,
                };
                format!("{}: {}, {bytes}: {}", record.id, self.state(&record), record.command)
            })
            .collect();
        match lines.is_empty() {
            true => Ok("no background command of this conversation".into()),
            false => Ok(lines.join("\n")),
        }
    }

    fn state(&self, record: &Record) -> String {
        let Some(end) = &record.end else {
            let ran = match self.live.borrow().get(&record.id) {
                Some(live) => live.started.elapsed(),
                None => Duration::from_millis(now().saturating_sub(record.started)),
            };
            return format!("running for {}", Time(ran));
        };
        format!("ended: {end}")
    }

    /// A command's output as text, from a byte or else its end.
    ///
    /// # Errors
    /// A line for an id that no command of this conversation has, and for output that is
    /// gone.
    pub fn read(&self, id: &str, from: Option<u64>) -> Result<String, String> {
        let record = self.own(id)?;
        let extent = self.extent(&record)?;
        let piece = self.piece(&record, &extent, from, self.limits.output)?;
        let (total, start) = (extent.total(), extent.start());
        let mut said = vec![format!("{id}: {}", self.state(&record))];
        match from.filter(|from| *from > extent.end()) {
            Some(from) => {
                said.push(format!("it has {total} bytes of output, so none from {from} on"))
            }
            None => said.push(format!("bytes {} to {} of {total}", piece.from, piece.next)),
        }
        if from.is_some_and(|from| from < start) {
            said.push(format!("those before {start} aren't kept any more"));
        }
        if piece.starts_inside {
            said.push(format!("byte {} is inside a character", piece.from));
        }
        if let Some(why) = self.unkept(&record) {
            said.push(why);
        }
        let next =
            if piece.next < total || record.end.is_none() { "begins" } else { "would begin" };
        said.push(format!("the next read {next} at {}", piece.next));
        Ok(format!("[{}]\n{}", said.join("; "), piece.text))
    }

    /// What of its output couldn't be kept.
    fn unkept(&self, record: &Record) -> Option<String> {
        let (unkept, why) = match self.live.borrow().get(&record.id) {
            Some(live) => {
                let output = live.output.borrow();
                (output.extent().unkept, output.why_unkept()?.to_owned())
            }
            None => (record.unkept, record.why_unkept.clone()?),
        };
        Some(format!("the last {unkept} bytes couldn't be kept: {why}"))
    }

    fn extent(&self, record: &Record) -> Result<Extent, String> {
        if let Some(live) = self.live.borrow().get(&record.id) {
            return Ok(live.output.borrow().extent());
        }
        let len = self.folder.file(&record.id).and_then(|file| Ok(file.metadata()?.len()));
        Ok(Extent {
            dropped: record.dropped,
            len: len.map_err(gone(&record.id))?,
            unkept: record.unkept,
            most: self.limits.background_output,
        })
    }

    fn piece(
        &self,
        record: &Record,
        extent: &Extent,
        from: Option<u64>,
        most: usize,
    ) -> Result<Piece, String> {
        let goes_on = record.end.is_none();
        let read = match self.live.borrow().get(&record.id) {
            Some(live) => output::read(live.output.borrow().file(), extent, from, most, goes_on),
            None => {
                let file = self.folder.file(&record.id);
                file.and_then(|file| output::read(&file, extent, from, most, goes_on))
            }
        };
        read.map_err(gone(&record.id))
    }

    /// Ends a command with everything it started, within two seconds, and answers once it
    /// has ended.
    ///
    /// # Errors
    /// A line for an id that no command of this conversation has.
    pub async fn stop(&self, id: &str) -> Result<String, String> {
        let record = self.own(id)?;
        let live = self.live.borrow().get(id).cloned();
        if let Some(live) = live {
            let mut ended = live.ended.subscribe();
            live.stop.notify_one();
            // Its sender is `live`, which is held here.
            let _ = ended.wait_for(|ended| *ended).await;
        } else if record.end.is_none() {
            return Err(format!(
                "{id} runs in another server of this conversation, which alone can stop it"
            ));
        }
        let record = self.own(id)?;
        Ok(self.message(&record))
    }

    /// What the answer to a call tells: the end of the command that it stopped, if any,
    /// and what [`Telling::news`] adds.
    #[must_use]
    pub fn telling(self: &Rc<Self>, stopped: Option<String>) -> Telling {
        let mut telling = Telling { background: self.clone(), ids: Vec::new() };
        stopped.into_iter().for_each(|id| telling.add(id));
        telling
    }

    /// Ends that are to be told and aren't on their way. Another server of the
    /// conversation may have told them meanwhile.
    fn still_untold(&self) -> Vec<(String, Record)> {
        let ids = self.ids(|untold| !untold.is_on_its_way);
        if ids.is_empty() {
            return Vec::new();
        }
        // Where it can't be had, a second time is better than none.
        let _locked = self.store.lock();
        let record = |id: String| match self.own(&id) {
            Ok(record) if record.told.is_none() => Some((id, record)),
            _ => {
                self.untold.borrow_mut().remove(&id);
                None
            }
        };
        ids.into_iter().filter_map(record).collect()
    }

    /// Tells of ends as they come, for as long as the server runs: each once to `log`,
    /// and to the harness, if there is one, until it has taken it. Written again is what
    /// couldn't be, and removed what is over.
    pub async fn tell(self: Rc<Self>, sink: Option<Sink>, log: mpsc::UnboundedSender<Event>) {
        let sweep = SWEEP.min(self.limits.background_keep);
        let mut swept = Instant::now();
        loop {
            self.write_again();
            self.log(&log);
            if let Some(sink) = &sink {
                self.hand_on(sink).await;
            }
            if swept.elapsed() >= sweep {
                self.sweep();
                swept = Instant::now();
            }
            let is_waiting = sink.is_some() && !self.untold.borrow().is_empty()
                || !self.unwritten.borrow().is_empty();
            tokio::select! {
                () = self.news.notified() => {}
                () = sleep(if is_waiting { AGAIN } else { sweep }) => {}
            }
        }
    }

    fn log(&self, log: &mpsc::UnboundedSender<Event>) {
        let is_logged = |id: &str| self.untold.borrow().get(id).is_some_and(|it| it.is_logged);
        for (id, record) in self.still_untold() {
            if is_logged(&id) {
                continue;
            }
            // Nobody listens where the client has gone.
            let _ = log.send(self.event(&record));
            self.set(&id, |untold| untold.is_logged = true);
        }
    }

    async fn hand_on(&self, sink: &Sink) {
        for (id, record) in self.still_untold() {
            // An answer may have it by now.
            if self.untold.borrow().get(&id).is_none_or(|untold| untold.is_on_its_way) {
                continue;
            }
            self.set(&id, |untold| untold.is_on_its_way = true);
            let is_taken = sink.send(&self.event(&record)).await;
            self.set(&id, |untold| untold.is_on_its_way = false);
            if !is_taken {
                return;
            }
            self.has_told(&id);
        }
    }

    fn ids(&self, which: impl Fn(&Untold) -> bool) -> Vec<String> {
        let untold = self.untold.borrow();
        untold.iter().filter(|(_, it)| which(it)).map(|(id, _)| id.clone()).collect()
    }

    fn set(&self, id: &str, change: impl FnOnce(&mut Untold)) {
        if let Some(untold) = self.untold.borrow_mut().get_mut(id) {
            change(untold);
        }
    }

    fn has_told(&self, id: &str) {
        if self.untold.borrow_mut().remove(id).is_none() {
            return;
        }
        if let Ok(mut record) = self.own(id) {
            record.told = Some(now());
            self.write(&record);
        }
    }

    fn event(&self, record: &Record) -> Event {
        let end = record.end.as_ref();
        Event {
            event: ENDED.into(),
            id: record.id.clone(),
            conversation: match &record.conversation {
                Conversation::Named(name) => Some(name.clone()),
                Conversation::Server(_) => None,
            },
            command: record.command.clone(),
            state: end.map_or("running", |end| end.how.word()).into(),
            status: end.and_then(|end| match end.how {
                How::Exited(status) => Some(status),
                _ => None,
            }),
            ran_ms: end.and_then(|end| end.ran),
            bytes: self.extent(record).map_or(0, |extent| extent.total()),
            message: self.message(record),
        }
    }

    /// How a command ended, and the end of its output. What it printed stands behind a
    /// bar in each line, so that it can't pass for anything else.
    fn message(&self, record: &Record) -> String {
        let mut lines = vec![format!("Background command {} {}.", record.id, self.state(record))];
        lines.push(format!("It was: {}", record.command));
        let notices = record.end.iter().flat_map(|end| &end.notices);
        lines.extend(notices.cloned());
        lines.extend(self.unkept(record));
        let tail = self
            .extent(record)
            .and_then(|extent| Ok((extent.total(), self.piece(record, &extent, None, TAIL)?)));
        match tail {
            Err(why) => lines.push(why),
            Ok((0, _)) => lines.push("It printed nothing.".into()),
            Ok((total, piece)) if piece.from == 0 => {
                lines.push(format!("Its output, {total} bytes:"));
                lines.extend(barred(&piece.text));
            }
            Ok((total, piece)) => {
                lines.push(format!(
                    "The end of its output, from byte {} of {total}; read gives the rest:",
                    piece.from
                ));
                lines.extend(barred(&piece.text));
            }
        }
        lines.join("\n")
    }

    /// The record of a command of this conversation. Of any other there is none.
    fn own(&self, id: &str) -> Result<Record, String> {
        let found = self.store.record(id).map(|record| self.newest(record));
        found.filter(|record| record.conversation == self.conversation).ok_or_else(|| {
            format!(
                "{}: no background command of this conversation has this id; list has those there are",
                escaped_name(cut(id).as_bytes())
            )
        })
    }

    /// A record as it is now, which may not be written yet.
    fn newest(&self, record: Record) -> Record {
        self.unwritten.borrow().get(&record.id).cloned().unwrap_or(record)
    }

    /// Writes a record down, now or when that is possible again.
    fn write(&self, record: &Record) {
        match self.store.lock() {
            Ok(locked) => self.write_down(&locked, record),
            Err(_) => drop(self.unwritten.borrow_mut().insert(record.id.clone(), record.clone())),
        }
    }

    fn write_down(&self, locked: &Locked<'_>, record: &Record) {
        let mut unwritten = self.unwritten.borrow_mut();
        match locked.update(record) {
            Ok(()) => unwritten.remove(&record.id),
            Err(_) => unwritten.insert(record.id.clone(), record.clone()),
        };
    }

    fn write_again(&self) {
        let records: Vec<_> = self.unwritten.borrow().values().cloned().collect();
        for record in &records {
            self.write(record);
        }
    }
}

/// Lines behind bars, in which nothing can look like the end of one.
fn barred(text: &str) -> impl Iterator<Item = String> {
    text.lines().map(|line| {
        let parts: Vec<_> = line.split('\t').map(|part| escaped(part.as_bytes())).collect();
        format!("| {}", parts.join("\t"))
    })
}

/// Keeps what comes next. Answers whether earlier bytes were dropped for it; `None` at
/// the output's end.
async fn keep(pipe: &pipe::Receiver, output: &RefCell<Output>) -> Option<bool> {
    loop {
        pipe.readable().await.ok()?;
        match read_now(pipe) {
            Some(Some(bytes)) => return Some(output.borrow_mut().push(&bytes)),
            Some(None) => return None,
            None => {}
        }
    }
}

/// What is there now: bytes, or nothing more ever; `None` where it is empty.
fn read_now(pipe: &pipe::Receiver) -> Option<Option<Vec<u8>>> {
    let mut some = vec![0; 64 * 1024];
    match pipe.try_read(&mut some) {
        Ok(0) => Some(None),
        Ok(length) => {
            some.truncate(length);
            Some(Some(some))
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        Err(_) => Some(None),
    }
}

fn gone(id: &str) -> impl FnOnce(io::Error) -> String {
    move |error| match error.kind() {
        io::ErrorKind::NotFound => format!("its output is gone: background/{id}.out was removed"),
        _ => format!("its output, background/{id}.out, can't be read: {}", reason(&error)),
    }
}

fn failed(what: impl AsRef<Path>) -> impl FnOnce(io::Error) -> String {
    let what = word(what.as_ref());
    move |error| format!("{what}: {}", reason(&error))
}
