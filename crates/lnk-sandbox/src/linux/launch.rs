//! The supervisor: starts bubblewrap and the joiner, sees every fence stand,
//! lets the program go, and stays with it to its end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lnk_sys::process::{Forked, exit_now, fork_single_threaded};
use lnk_sys::signal::{self, Taken};
use lnk_wire::gate::{Closing, Whose};
use lnk_wire::paused::between_changes;
use lnk_wire::policy::Policy as WirePolicy;
use lnk_wire::refused::ToldCalls;
use lnk_wire::traffic::Carried;
use lnk_wire::wire::{Listener, Wire};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, wait, waitpid,
};

use crate::error::{Error, Result, failed};
use crate::faults::Fault;
use crate::linux::begun::{Begun, Bwrap, Going, ON_COMMAND_LINE, Pipes, SIGNALS, number};
use crate::linux::broker::{Broker, Inside, Unheard};
use crate::linux::bwrap::Arguments;
use crate::linux::execs::{Execs, Executed, Mode as Told};
use crate::linux::failure::{LaunchError, name_ready};
use crate::linux::inner::Orders;
use crate::linux::joiner::Joiner;
use crate::linux::judged::{Executable, Expected, Place};
use crate::linux::message::{self, FromInner, FromJoiner};
use crate::linux::processes::Limit;
use crate::linux::{finish, guard, listeners};
use crate::mountinfo::Mounts;
use crate::network::Listens;
use crate::paths::Identity;
use crate::plan::Plan;
use crate::programs::{ProgramList, Programs};
use crate::ssh::{self, known_hosts};

/// How long a sandbox may take to be built, before it is given up: it takes
/// milliseconds, and on a machine under load seconds.
const START: Duration = Duration::from_secs(60);
/// Of bubblewrap's complaints, the bytes kept.
const MAX_COMPLAINT: usize = 4096;

/// How a sandbox ended.
#[derive(Debug, Default)]
pub struct Ended {
    /// The program's own status, or 128 and the signal that ended it.
    pub status: u8,
    /// Why the program couldn't be executed, and the path tried.
    pub not_executed: Option<(i32, PathBuf)>,
    /// Unix sockets that it was refused.
    pub refused_sockets: Vec<Vec<u8>>,
    /// Programs to tell of that there were too many others for.
    pub unheard_programs: u64,
    /// Refused calls that count towards a pause and couldn't be kept.
    pub uncounted: usize,
    /// What the wire carried, where there is one.
    pub carried: Option<Carried>,
    /// Calls that the wire refused.
    pub refused_calls: ToldCalls,
    /// Calls of endpoints that came to nothing.
    pub failed_calls: ToldCalls,
    /// What stands, after its end, where its ssh writes host keys that servers showed it.
    pub host_keys: Vec<u8>,
}

/// The wire of a sandbox.
pub struct Served<'a> {
    /// What it lets through.
    pub policy: WirePolicy,
    /// Whose it is.
    pub whose: Whose,
    /// Link's settings of the sandbox, where its log is.
    pub settings: &'a Path,
    /// Hears of its closing: before the program starts, where it's closed from then on.
    pub on_closed: &'a dyn Fn(Closing),
}

/// A sandbox to launch.
pub struct Launch<'a> {
    /// The sandbox.
    pub plan: &'a Plan,
    /// Makes an empty folder for a protected name that vanished.
    pub replace: &'a dyn Fn(&Path) -> io::Result<()>,
    /// What serves the sandbox's listeners, where it has some.
    pub served: Option<Served<'a>>,
    /// How long the program may take to end after TERM or HUP, before it is killed.
    pub grace: Duration,
    /// Does what is to be done once everything stands, and only then: where it fails,
    /// nothing runs.
    pub on_start: &'a dyn Fn() -> Result<()>,
    /// Hears of programs, as the plan has them told.
    pub on_program: &'a dyn Fn(Executed),
    /// The machine's mounts when the grants were judged.
    pub host_mounts: &'a Mounts,
}

impl Launch<'_> {
    /// Runs the sandbox to its end, with the mounts made by the joiner.
    ///
    /// # Errors
    /// [`LaunchError`]; the program has not run then, and nothing is left.
    pub fn with_joiner(&self, begun: Begun) -> Result<Ended, LaunchError> {
        let (begun, arguments, joiner) = self.prepare_with_joiner(begun).map_err(name_ready)?;
        self.run(begun, &arguments, Some(joiner))
    }

    fn prepare_with_joiner(
        &self,
        mut begun: Begun,
    ) -> Result<(Begun, Vec<u8>, Helper), LaunchError> {
        let Some(pipes) = begun.pipes.take() else {
            return Err(failed("the pipes to the joiner")(Errno::BADF).into());
        };
        let mut arguments = Arguments::base(self.plan);
        arguments.extend(["--tmpfs", "/run"]);
        arguments.extend(["--file", &number(&pipes.sync_read), "/run/.joiner"]);
        arguments.extend(["--info-fd", &number(&pipes.info_write)]);
        let (arguments, _) = arguments.into_bytes(ON_COMMAND_LINE).map_err(too_many_mounts)?;
        begun.order(&self.orders(&begun.signals, Vec::new())).map_err(failed("orders"))?;
        // Before bubblewrap makes its first process, so that the joiner can end
        // what is left of it when we are killed.
        let joiner = self.fork_joiner(pipes)?;
        Ok((begun, arguments, joiner))
    }

    /// Runs the sandbox to its end, with the mounts made by the bubblewrap at
    /// `path`.
    ///
    /// # Errors
    /// [`LaunchError`]; the program has not run then, and nothing is left.
    pub fn without_joiner(&self, path: &Path) -> Result<Ended, LaunchError> {
        let (begun, arguments) = self.prepare_without_joiner(path).map_err(name_ready)?;
        self.run(begun, &arguments, None)
    }

    fn prepare_without_joiner(&self, path: &Path) -> Result<(Begun, Vec<u8>), LaunchError> {
        let mut arguments = Arguments::base(self.plan);
        arguments.mounts(self.plan).map_err(failed("bubblewrap's arguments"))?;
        let (arguments, files) = arguments.into_bytes(ON_COMMAND_LINE).map_err(too_many_mounts)?;
        let begun = Begun::without_joiner(path, &files, &self.plan.faults)?;
        let expected = finish::expected(&self.plan.mounts);
        begun.order(&self.orders(&begun.signals, expected)).map_err(failed("orders"))?;
        Ok((begun, arguments))
    }

    fn run(
        &self,
        begun: Begun,
        arguments: &[u8],
        joiner: Option<Helper>,
    ) -> Result<Ended, LaunchError> {
        let Going { bwrap, signals, control, complaints } = begun.go(arguments);
        let mut run = Run {
            launch: self,
            bwrap,
            control,
            complaints,
            signals,
            by_joiner: joiner.is_some(),
            joiner,
            inner: None,
            program: None,
            broker: None,
            execs: None,
            listeners: Vec::new(),
            wire: None,
            ssh_writes_in: None,
            broker_done: false,
            finishing: false,
            finished: false,
            started: false,
            not_executed: None,
            kill_at: Some(Instant::now() + START),
            end_by: None,
        };
        let ended = run.supervise();
        // Its sockets would keep the sandbox's network alive.
        run.wire = None;
        run.end_everything();
        ended.map_err(|error| if run.started { error } else { name_ready(error) })
    }

    fn fork_joiner(&self, pipes: Pipes) -> Result<Helper> {
        let (ours, theirs) = message::pair().map_err(failed("socketpair"))?;
        let own_pid = rustix::process::getpid();
        let own = pidfd_open(own_pid, PidfdFlags::empty()).map_err(failed("pidfd_open"))?;
        let root = rustix::fs::stat("/").map_err(failed("/"))?;
        let proc = own_proc()?;
        match fork_single_threaded().map_err(failed("fork"))? {
            Forked::Parent(pid) => Helper::new(pid, ours),
            Forked::Child => {
                let joiner = Joiner {
                    plan: self.plan,
                    info: pipes.info_read,
                    sync: pipes.sync_write,
                    supervisor: theirs,
                    supervisor_process: own,
                    host_root: Identity::from(&root),
                    host_proc: proc,
                    terminal: terminal(),
                };
                let kept = [
                    joiner.info.as_fd(),
                    joiner.sync.as_fd(),
                    joiner.supervisor.as_fd(),
                    joiner.supervisor_process.as_fd(),
                    joiner.host_proc.as_fd(),
                ];
                if lnk_sys::fd::close_all_but(&kept).is_err() {
                    exit_now(1);
                }
                joiner.run()
            }
        }
    }

    fn orders(&self, signals: &Taken, expected: Vec<Expected>) -> Vec<u8> {
        let ignored = SIGNALS.into_iter().filter(|signal| signals.was_ignored(*signal)).collect();
        let plan = self.plan;
        let env =
            plan.env.iter().map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat());
        let orders = Orders {
            program: plan.program.iter().map(|argument| argument.as_bytes().to_vec()).collect(),
            env: env.collect(),
            cwd: Place::from(&plan.cwd),
            writable: plan.writable.iter().map(Place::from).collect(),
            private: plan.private.iter().map(Place::from).collect(),
            programs: plan.programs.list().map(executables),
            tells_programs: plan.programs != Programs::Any,
            shares_network: plan.shares_network,
            processes: match plan.processes {
                Some(Limit::User(most)) => Some(most),
                _ => None,
            },
            expected,
            ignored,
            faults: plan.faults.clone(),
        };
        postcard::to_stdvec(&orders).expect("plain data is always serialised")
    }
}

fn executables(list: &ProgramList) -> Vec<Executable> {
    let judged = list
        .files
        .iter()
        .chain(&list.folders)
        .map(|(real, identity)| Executable::Judged { at: Place::from(real), identity: *identity });
    judged.chain(list.loaders.iter().map(|real| Executable::Loader(Place::from(real)))).collect()
}

/// What hears of the programs that a plan has told.
fn execs(plan: &Plan, root: &OwnedFd) -> io::Result<Option<Execs>> {
    let told = match &plan.programs {
        Programs::Any => return Ok(None),
        Programs::Learnt(_) => Told::Learn,
        Programs::Listed(list) => Told::List(list.clone()),
    };
    let writable = plan.writable.iter().chain(&plan.private).cloned().collect();
    Execs::new(root.try_clone()?, told, writable).map(Some)
}

fn too_many_mounts(error: io::Error) -> LaunchError {
    if error.raw_os_error() == Some(libc::E2BIG) {
        return LaunchError::Other(Error::Refused(
            "too many folders for bubblewrap to mount; name fewer, or a folder that holds them"
                .into(),
        ));
    }
    LaunchError::Other(failed("bubblewrap's arguments")(error))
}

/// The caller's terminal, if the program is to have one.
fn terminal() -> Option<PathBuf> {
    let streams = [rustix::stdio::stdout(), rustix::stdio::stdin(), rustix::stdio::stderr()];
    let name =
        streams.into_iter().find_map(|stream| rustix::termios::ttyname(stream, Vec::new()).ok())?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes())))
}

/// The joiner or guard, as the supervisor holds it.
#[derive(Debug)]
struct Helper {
    pid: Pid,
    process: OwnedFd,
    socket: OwnedFd,
    /// Whether it has done its work before the start.
    done: bool,
}

impl Helper {
    fn new(pid: i32, socket: OwnedFd) -> Result<Self> {
        let pid = Pid::from_raw(pid)
            .ok_or_else(|| failed("fork")(io::Error::from_raw_os_error(libc::ECHILD)))?;
        let process = pidfd_open(pid, PidfdFlags::empty()).map_err(failed("pidfd_open"))?;
        Ok(Helper { pid, process, socket, done: false })
    }
}

/// A sandbox that is being built or runs.
struct Run<'a> {
    launch: &'a Launch<'a>,
    bwrap: Bwrap,
    control: OwnedFd,
    complaints: OwnedFd,
    signals: Taken,
    joiner: Option<Helper>,
    /// Whether the joiner makes the mounts, not bubblewrap.
    by_joiner: bool,
    /// The sandbox's process 1, seen from here, once it is ready.
    inner: Option<(Pid, OwnedFd, Vec<OwnedFd>)>,
    program: Option<(Pid, OwnedFd)>,
    broker: Option<Broker>,
    /// Tells which programs are started, or refused.
    execs: Option<Execs>,
    /// Sockets of the sandbox's network, until they are served.
    listeners: Vec<(Listens, OwnedFd)>,
    /// Serves them.
    wire: Option<Wire>,
    /// The folder where its ssh writes host keys, which lasts as long as it is held.
    ssh_writes_in: Option<OwnedFd>,
    /// Nothing is left inside that the broker could hear of.
    broker_done: bool,
    /// Whether what bubblewrap mounted is being, or was, finished and verified.
    finishing: bool,
    finished: bool,
    started: bool,
    not_executed: Option<(i32, PathBuf)>,
    /// When to kill what doesn't start, or doesn't end, by itself.
    kill_at: Option<Instant>,
    /// The status to end with when a signal ended the run before the program
    /// started.
    end_by: Option<u8>,
}

/// Which descriptor has something to say.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Signals,
    Helper,
    HelperEnd,
    Control,
    Broker,
    Programs,
    Wire,
    BwrapEnd,
}

impl Run<'_> {
    /// Waits and answers until the sandbox has ended.
    fn supervise(&mut self) -> Result<Ended, LaunchError> {
        while self.bwrap.status.is_none() {
            for source in self.wait()? {
                match source {
                    Source::Signals => self.pass_signals_on()?,
                    Source::Helper => {
                        self.hear_helper()?;
                    }
                    Source::HelperEnd => self.helper_ended()?,
                    Source::Control => self.hear_inner()?,
                    Source::Broker => self.start_broker()?,
                    Source::Programs => self.tell_of_programs(),
                    Source::Wire => self.tell_of_closings(),
                    Source::BwrapEnd => self.bwrap_ended()?,
                }
                if let Some(status) = self.end_by {
                    return Ok(Ended { status, ..Ended::default() });
                }
            }
            self.start_if_ready()?;
            if self.kill_at.is_some_and(|at| at <= Instant::now()) {
                if !self.started {
                    let late = format!("no sandbox was built within {} seconds", START.as_secs());
                    return Err(LaunchError::Bwrap(late));
                }
                self.kill_at = None;
                self.kill();
            }
        }
        if !self.started {
            return Err(self.why_bwrap_failed());
        }
        self.tell_of_programs();
        self.tell_of_closings();
        Ok(Ended {
            status: self.bwrap.status.unwrap_or(125),
            not_executed: self.not_executed.take(),
            refused_sockets: self.broker.as_ref().map(Broker::refused).unwrap_or_default(),
            unheard_programs: self.execs.as_ref().map_or(0, Execs::left_out),
            uncounted: self.wire.as_ref().map_or(0, Wire::uncounted),
            carried: self.wire.as_ref().map(Wire::carried),
            refused_calls: self.wire.as_ref().map(Wire::refused).unwrap_or_default(),
            failed_calls: self.wire.as_ref().map(Wire::failed).unwrap_or_default(),
            host_keys: self
                .ssh_writes_in
                .as_ref()
                .map(|folder| known_hosts::read_foreign(folder.as_fd(), ssh::ACCEPTED))
                .unwrap_or_default(),
        })
    }

    /// Waits for the next things to answer, in the order to answer them: what
    /// the sandbox still had to say comes before its end.
    fn wait(&mut self) -> Result<Vec<Source>> {
        let mut sources = vec![Source::Signals, Source::Control, Source::BwrapEnd];
        let mut fds = vec![
            PollFd::from_borrowed_fd(self.signals.fd(), PollFlags::IN),
            PollFd::new(&self.control, PollFlags::IN),
            PollFd::new(&self.bwrap.process, PollFlags::IN),
        ];
        if let Some(joiner) = &self.joiner {
            sources.extend([Source::Helper, Source::HelperEnd]);
            fds.push(PollFd::new(&joiner.socket, PollFlags::IN));
            fds.push(PollFd::new(&joiner.process, PollFlags::IN));
        }
        let broker = self.broker.as_ref().filter(|_| !self.broker_done).and_then(Broker::fd);
        if let Some(broker) = broker {
            sources.push(Source::Broker);
            fds.push(PollFd::from_borrowed_fd(broker, PollFlags::IN));
        }
        if let Some(execs) = &self.execs {
            sources.push(Source::Programs);
            fds.push(PollFd::from_borrowed_fd(execs.fd(), PollFlags::IN));
        }
        if let Some(wire) = &self.wire {
            sources.push(Source::Wire);
            fds.push(PollFd::from_borrowed_fd(wire.fd(), PollFlags::IN));
        }
        let until_kill = self.kill_at.map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = until_kill.map(|timeout| Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()) + 1,
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(failed("poll")(error)),
        }
        let said = |fd: &PollFd<'_>| fd.revents();
        let ready = sources.iter().zip(&fds).filter(|(source, fd)| match source {
            Source::Broker => said(fd).contains(PollFlags::IN),
            _ => !said(fd).is_empty(),
        });
        let mut ready: Vec<Source> = ready.map(|(source, _)| *source).collect();
        // Its hang-up would be reported again and again until the sandbox is
        // taken down.
        let hung_up = sources
            .iter()
            .zip(&fds)
            .any(|(source, fd)| *source == Source::Broker && said(fd) == PollFlags::HUP);
        self.broker_done |= hung_up;
        ready.sort_by_key(|source| match source {
            Source::Signals => 0,
            Source::Helper => 1,
            Source::Control | Source::Broker | Source::Programs | Source::Wire => 2,
            Source::HelperEnd => 3,
            Source::BwrapEnd => 4,
        });
        Ok(ready)
    }

    fn pass_signals_on(&mut self) -> Result<(), LaunchError> {
        while let Some(received) = self.signals.next().map_err(failed("signals"))? {
            // Who started us had it ignored, as nohup does; so has the program.
            if self.signals.was_ignored(received.signal) {
                continue;
            }
            // A program that started before the signal came has said so before.
            self.hear_inner()?;
            let by_terminal =
                matches!(received.signal, libc::SIGINT | libc::SIGQUIT) && !received.by_process;
            // The terminal's keys reach the program, in the same process group.
            if by_terminal && self.program.is_some() {
                continue;
            }
            let Some((_, program)) = &self.program else {
                self.end_by = Some((128 + received.signal) as u8);
                return Ok(());
            };
            if let Some(signal) = Signal::from_named_raw(received.signal) {
                let _ = pidfd_send_signal(program, signal);
            }
            if matches!(received.signal, libc::SIGTERM | libc::SIGHUP) {
                self.kill_at.get_or_insert_with(|| Instant::now() + self.launch.grace);
            }
        }
        Ok(())
    }

    /// Answers one thing that the helper said; whether there was one.
    fn hear_helper(&mut self) -> Result<bool, LaunchError> {
        let Some(helper) = &mut self.joiner else { return Ok(false) };
        let Ok(Some(received)) = message::receive::<FromJoiner>(helper.socket.as_fd()) else {
            return Ok(false);
        };
        match received.message {
            FromJoiner::Listening(listens) => {
                self.listeners.extend(listens.into_iter().zip(received.fds));
            }
            FromJoiner::Done => helper.done = true,
            FromJoiner::Unsupported(why) => return Err(LaunchError::JoinerUnsupported(why)),
            FromJoiner::Bwrap(why) => {
                // bubblewrap's own words, where it had some, tell more.
                let complaint = self.complaint();
                return Err(LaunchError::Bwrap(if complaint.is_empty() { why } else { complaint }));
            }
            // The guard, before there is a program to guard against: where a call
            // is refused, the inner stage may have met the same.
            FromJoiner::Failed(why) if helper.done && !self.started => {
                self.hear_inner()?;
                return Err(LaunchError::Other(Error::NotReady(why)));
            }
            FromJoiner::Failed(why) => return Err(self.failed_in_joiner(why)),
            FromJoiner::Vanished(path) => {
                let path = Path::new(std::ffi::OsStr::from_bytes(&path));
                (self.launch.replace)(path).map_err(failed(lnk_spec::shown::word(path)))?;
            }
        }
        Ok(true)
    }

    /// bubblewrap's own words, where it failed first, tell more than the
    /// joiner's.
    fn failed_in_joiner(&mut self, why: String) -> LaunchError {
        match self.complaint() {
            complaint if complaint.is_empty() => LaunchError::Other(Error::Refused(why)),
            complaint => LaunchError::Bwrap(complaint),
        }
    }

    /// The joiner ends when it is done and there is nothing to guard; any other
    /// end ends the run.
    fn helper_ended(&mut self) -> Result<(), LaunchError> {
        // It sent several messages, perhaps, before it ended.
        while self.hear_helper()? {}
        let Some(helper) = &self.joiner else { return Ok(()) };
        let guards = !self.launch.plan.watched.is_empty();
        if helper.done && !guards {
            let _ = waitpid(Some(helper.pid), WaitOptions::empty());
            self.joiner = None;
            return Ok(());
        }
        let what = if helper.done { "the guard of dot files" } else { "the joiner" };
        if !self.started {
            // What the inner stage or bubblewrap failed at tells more.
            self.hear_inner()?;
        }
        let message = format!("{what} ended, so the run was ended too; run it again");
        match self.complaint() {
            complaint if !complaint.is_empty() && !self.started => {
                Err(LaunchError::Bwrap(complaint))
            }
            _ if !self.started => Err(LaunchError::Other(Error::NotReady(format!(
                "{what} ended before the program started"
            )))),
            _ => Err(LaunchError::Other(Error::Refused(message))),
        }
    }

    /// Answers all that the inner stage has said by now.
    fn hear_inner(&mut self) -> Result<(), LaunchError> {
        while self.bwrap.status.is_none() && is_readable(&self.control)? {
            self.hear_one()?;
        }
        Ok(())
    }

    fn hear_one(&mut self) -> Result<(), LaunchError> {
        let received = message::receive::<FromInner>(self.control.as_fd())
            .map_err(failed("the inner stage"))?;
        let Some(received) = received else { return self.reap_bwrap() };
        match received.message {
            FromInner::Ready => {
                let pid = received.pid.ok_or_else(|| failed("the inner stage")(Errno::BADMSG))?;
                let process = pidfd_open(pid, PidfdFlags::empty()).map_err(failed("pidfd_open"))?;
                self.inner = Some((pid, process, received.fds));
            }
            FromInner::Program => {
                if let (true, None, Some(pid)) = (self.started, &self.program, received.pid) {
                    let program = pidfd_open(pid, PidfdFlags::empty());
                    self.program = program.ok().map(|program| (pid, program));
                }
            }
            FromInner::ExecFailed { errno, path } => {
                use std::os::unix::ffi::OsStringExt;
                self.not_executed = Some((errno, std::ffi::OsString::from_vec(path).into()));
            }
            FromInner::Failed { what } if !self.started => {
                return Err(LaunchError::Other(Error::NotReady(what)));
            }
            FromInner::Failed { what } => return Err(LaunchError::Other(Error::Refused(what))),
            FromInner::Stopped => self.stop_with_program(),
        }
        Ok(())
    }

    /// A program that stops itself (an editor's suspend key) must give the
    /// terminal back to the shell that started us: it waits for us, not for
    /// the program. Not if the program runs again by now.
    fn stop_with_program(&self) {
        if let Some((pid, _)) = &self.program
            && is_stopped(*pid)
        {
            // Not with what other lnks wait for.
            between_changes(signal::suspend_self);
        }
    }

    fn start_broker(&mut self) -> Result<()> {
        match &mut self.broker {
            Some(broker) => broker.start().map_err(failed("the broker")),
            None => Ok(()),
        }
    }

    /// Serves what listens inside, on a thread of its own. Nothing forks any more.
    fn serve(&mut self) -> Result<()> {
        let Some(served) = &self.launch.served else { return Ok(()) };
        let listeners = std::mem::take(&mut self.listeners);
        let is_missing = |listens: &&Listens| {
            listens.at.is_ipv4() && listeners.iter().all(|(its, _)| its != *listens)
        };
        if let Some(missing) = self.launch.plan.listens.iter().find(is_missing) {
            return Err(failed(format!("port {} inside", missing.at.port()))(Errno::BADF));
        }
        let listeners = listeners
            .into_iter()
            .map(|(listens, socket)| Listener { socket, serves: listens.serves });
        let Served { policy, whose, settings, .. } = served;
        let wire = Wire::start(listeners.collect(), policy.clone(), whose.clone(), settings);
        self.wire = Some(wire.map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => Error::Refused(format!(
                "a sandbox called {} runs already, in another container with this home: start it again",
                whose.sandbox.name
            )),
            _ => failed("its proxy can't be started")(error),
        })?);
        self.tell_of_closings();
        Ok(())
    }

    fn tell_of_closings(&self) {
        if let (Some(served), Some(wire)) = (&self.launch.served, &self.wire) {
            std::iter::from_fn(|| wire.next_closing()).for_each(served.on_closed);
        }
    }

    fn tell_of_programs(&self) {
        let told = self.execs.iter().flat_map(|execs| std::iter::from_fn(|| execs.next()));
        told.for_each(self.launch.on_program);
    }

    /// The sandbox ended before bubblewrap did: all that it said waits.
    fn bwrap_ended(&mut self) -> Result<(), LaunchError> {
        self.hear_inner()?;
        self.reap_bwrap()
    }

    fn reap_bwrap(&mut self) -> Result<(), LaunchError> {
        Ok(self.bwrap.reap().map_err(failed("waitpid"))?)
    }

    /// Lets the program go once both the mounts and the inner stage are ready.
    fn start_if_ready(&mut self) -> Result<(), LaunchError> {
        let joined = self.joiner.as_ref().is_none_or(|joiner| joiner.done);
        if self.started || !joined || self.inner.is_none() {
            return Ok(());
        }
        if !self.by_joiner && !self.finished {
            match &self.joiner {
                None if !self.finishing => {
                    self.joiner = Some(self.fork_guard()?);
                    self.finishing = true;
                    return Ok(());
                }
                _ => self.finished = true,
            }
            let pid = self.inner.as_ref().map(|(pid, _, _)| *pid);
            let pid = pid.ok_or_else(|| failed("the mounts")(Errno::SRCH))?;
            finish::verify(pid, &self.launch.plan.mounts, self.launch.host_mounts)?;
        }
        let Some((pid, _, fds)) = &mut self.inner else { return Ok(()) };
        let mut fds = fds.drain(..);
        let (Some(listener), Some(diag)) = (fds.next(), fds.next()) else {
            return Err(LaunchError::Other(Error::NotReady(
                "the inner stage sent no listener".into(),
            )));
        };
        drop(fds);
        let root = format!("/proc/{}/root", pid.as_raw_nonzero());
        let root = rustix::fs::open(
            &root,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(failed("the sandbox's root"))?;
        let device = |path: &PathBuf| {
            let place = super::tree::open_below(root.as_fd(), path)?;
            io::Result::Ok(rustix::fs::fstat(&place)?.st_dev)
        };
        let private = self.launch.plan.private.iter().map(device).collect::<io::Result<Vec<u64>>>();
        let private = private.map_err(failed("the sandbox's private folders"))?;
        if self.launch.plan.has_ssh {
            let folder = super::tree::open_below(root.as_fd(), Path::new(ssh::ACCEPTED_FOLDER));
            self.ssh_writes_in = Some(folder.map_err(failed(ssh::ACCEPTED_FOLDER))?);
        }
        let netns_cookie =
            lnk_sys::socket::netns_cookie(diag.as_fd()).map_err(failed("SO_NETNS_COOKIE"))?;
        self.execs = execs(self.launch.plan, &root).map_err(failed("an event descriptor"))?;
        // In the machine's network it would tell of the machine's sockets.
        let diag = Some(diag).filter(|_| !self.launch.plan.shares_network);
        self.serve()?;
        let unheard = self.wire.as_ref().map(|wire| {
            let wire = wire.unheard();
            Box::new(move |to| wire.tell(to)) as Unheard
        });
        self.broker = Some(Broker::new(
            listener,
            Inside { root, private, diag, netns_cookie, unheard },
            self.execs.as_ref().map(Execs::answers),
        ));
        (self.launch.on_start)()?;
        self.started = true;
        self.kill_at = None;
        rustix::io::write(&self.control, &[1]).map_err(failed("the inner stage"))?;
        Ok(())
    }

    /// Where bubblewrap made the mounts: a process that joins its namespaces
    /// now, detaches them from the machine's, covers links, and guards if there
    /// is anything to guard.
    fn fork_guard(&self) -> Result<Helper> {
        let Some((pid, _, _)) = &self.inner else { return Err(failed("the guard")(Errno::SRCH)) };
        let space = |name| {
            let path = format!("/proc/{}/ns/{name}", pid.as_raw_nonzero());
            rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .map_err(failed(path))
        };
        let (mounts, network) = (space("mnt")?, space("net")?);
        let most = self.launch.plan.limits_namespace();
        let processes = most.map(|most| Ok::<_, Error>((most, space("pid")?, own_proc()?)));
        let processes = processes.transpose()?;
        let users = lnk_sys::mount::owning_user_namespace(mounts.as_fd())
            .map_err(failed("NS_GET_USERNS"))?;
        let (ours, theirs) = message::pair().map_err(failed("socketpair"))?;
        match fork_single_threaded().map_err(failed("fork"))? {
            Forked::Parent(pid) => Helper::new(pid, ours),
            Forked::Child => {
                let mut kept = vec![mounts.as_fd(), network.as_fd(), users.as_fd(), theirs.as_fd()];
                if let Some((_, space, proc)) = &processes {
                    kept.extend([space.as_fd(), proc.as_fd()]);
                }
                if lnk_sys::fd::close_all_but(&kept).is_err() {
                    exit_now(1);
                }
                let Plan { watched, listens, addresses, faults, .. } = self.launch.plan;
                let finished = || {
                    let root = finish::join(&mounts, &users, faults)?;
                    finish::finish(&root)?;
                    if let Some((most, space, proc)) = &processes {
                        finish::limit_processes(*most, space, proc)?;
                    }
                    if !listens.is_empty() {
                        finish::join_network(&network)?;
                    }
                    Ok(root)
                };
                let root = finished().map_err(FromJoiner::Unsupported).and_then(|root| {
                    listeners::open_and_send(listens, addresses, &theirs)
                        .map_err(FromJoiner::Failed)?;
                    guard::cover_links(&root, watched).map_err(FromJoiner::Failed)?;
                    Ok(root)
                });
                let (message, root) = match root {
                    Ok(root) => (FromJoiner::Done, Some(root)),
                    Err(why) => (why, None),
                };
                let sent = message::send(theirs.as_fd(), &message, &[]);
                match root {
                    Some(root) if sent.is_ok() && !watched.is_empty() => {
                        guard::watch(&root, watched, &theirs)
                    }
                    Some(_) if sent.is_ok() => exit_now(0),
                    _ => exit_now(1),
                }
            }
        }
    }

    /// What bubblewrap wrote, if it failed.
    fn complaint(&self) -> String {
        let mut text = vec![0u8; MAX_COMPLAINT];
        let read = rustix::io::read(&self.complaints, &mut text).unwrap_or(0);
        String::from_utf8_lossy(&text[..read]).trim().to_owned()
    }

    fn why_bwrap_failed(&mut self) -> LaunchError {
        let complaint = self.complaint();
        let status = self.bwrap.status.unwrap_or(125);
        LaunchError::Bwrap(if complaint.is_empty() {
            format!("bubblewrap ended with status {status}")
        } else {
            complaint
        })
    }

    fn kill(&self) {
        if let Some((_, inner, _)) = &self.inner {
            let _ = pidfd_send_signal(inner, Signal::KILL);
        }
        self.bwrap.kill();
    }

    /// Ends and reaps every process of the run.
    fn end_everything(&mut self) {
        if self.bwrap.status.is_none() {
            self.kill();
            let _ = self.bwrap.reap();
        }
        if let Some(helper) = self.joiner.take() {
            let _ = pidfd_send_signal(&helper.process, Signal::KILL);
            let _ = waitpid(Some(helper.pid), WaitOptions::empty());
        }
        if !self.launch.plan.faults.has(Fault::Leftovers) {
            reap_the_rest();
        }
    }
}

/// The machine's `/proc`.
fn own_proc() -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open("/proc", flags, Mode::empty()).map_err(failed("/proc"))
}

/// Whether there is something to read, or an end, without waiting.
fn is_readable(fd: &OwnedFd) -> Result<bool> {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&now)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(true),
        Err(error) => Err(failed("poll")(error)),
    }
}

/// Children that came to us when bubblewrap was killed: the sandbox's process
/// 1, whose end ends all the others.
fn reap_the_rest() {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => continue,
            Ok(None) => {}
            Err(_) => return,
        }
        let children = children();
        for child in &children {
            if let Ok(process) = pidfd_open(*child, PidfdFlags::empty()) {
                let _ = pidfd_send_signal(&process, Signal::KILL);
            }
        }
        if children.is_empty() || wait(WaitOptions::empty()).is_err() {
            return;
        }
    }
}

fn children() -> Vec<Pid> {
    let own = rustix::process::getpid().as_raw_nonzero();
    let list =
        std::fs::read_to_string(format!("/proc/self/task/{own}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// Whether a process is stopped at this moment, proc_pid_stat(5).
fn is_stopped(pid: Pid) -> bool {
    let stat = std::fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    // The name in parentheses may hold anything; the state follows it.
    let state = stat.iter().rposition(|byte| *byte == b')').and_then(|end| stat.get(end + 2));
    state == Some(&b'T')
}
