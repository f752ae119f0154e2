//! The system calls that a program in the sandbox doesn't get.
//!
//! Namespaces, mounts and Landlock hold the sandbox; the filter closes what
//! goes past them (a terminal's input queue, keyrings, sockets without a
//! namespace, set-user-ID files for the host) and takes away the parts of the
//! kernel that an ordinary program has no use for. It allows what it doesn't
//! name, up to the newest call known here: a later kernel's calls don't exist.
//!
//! connect(2) is answered by the [broker](super::broker), as only it can see
//! which Unix socket a path leads to.

mod bpf;

use libc::{
    AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, CLONE_FILES, CLONE_FS, CLONE_NEWCGROUP, CLONE_NEWIPC,
    CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, CLONE_NEWUTS, CLONE_SIGHAND,
    CLONE_SYSVSEM, CLONE_THREAD, CLONE_VM, EACCES, EAFNOSUPPORT, ENOSYS, EOPNOTSUPP, EPERM,
    EPROTONOSUPPORT, NETLINK_ROUTE, O_CREAT, S_ISGID, S_ISUID, SOCK_DGRAM, SOCK_RAW, c_int, c_long,
};
use lnk_sys::seccomp::Instruction;

use crate::faults::{Fault, Faults};
use bpf::{Compare, Label, Program};

/// Which calls are heard of besides connect(2), by [`execs`](super::execs).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Watch {
    /// None: every program runs.
    #[default]
    Nothing,
    /// Programs that are started, to say which.
    Execs,
    /// Those, and files in memory: Landlock lets each of them be executed, so
    /// they are made where they can't be.
    ExecsAndMemfds,
}

impl Watch {
    fn calls(self) -> &'static [c_long] {
        match self {
            Watch::Nothing => &[],
            Watch::Execs => &[libc::SYS_execve, libc::SYS_execveat],
            Watch::ExecsAndMemfds => {
                &[libc::SYS_execve, libc::SYS_execveat, libc::SYS_memfd_create]
            }
        }
    }
}

/// The filter for the program in the sandbox and all it starts. Put it on with
/// [`lnk_sys::seccomp::install_with_listener`]; the calls that arrive there are
/// connect(2)s and what is watched. Refused calls fail with an error of theirs,
/// none kills.
#[must_use]
pub fn program_filter(watch: Watch) -> Vec<Instruction> {
    filter_but_for(&Faults::default(), watch)
}

/// [`program_filter`], but for what is left out on purpose.
pub(super) fn filter_but_for(faults: &Faults, watch: Watch) -> Vec<Instruction> {
    let mut program = Program::default();
    let refusals = Refusals { eperm: program.label(), enosys: program.label() };
    let watched = program.label();
    refuse_other_tables(&mut program, &refusals);
    for call in BY_ARGUMENT.chunk_by(|one, next| one.call == next.call) {
        let fence = if call[0].call == libc::SYS_connect { Fault::Broker } else { Fault::Seccomp };
        if faults.has(fence) {
            continue;
        }
        judge_arguments(&mut program, call);
    }
    let refused = if faults.has(Fault::Seccomp) { &[] } else { REFUSED };
    for (errno, calls) in refused {
        for call in *calls {
            divert(&mut program, *call, refusals.of(*errno));
        }
    }
    for call in watch.calls() {
        divert(&mut program, *call, watched);
    }
    program.ret(libc::SECCOMP_RET_ALLOW);
    program.bind(watched);
    program.ret(libc::SECCOMP_RET_USER_NOTIF);
    program.bind(refusals.eperm);
    program.ret(fail_with(EPERM));
    program.bind(refusals.enosys);
    program.ret(fail_with(ENOSYS));
    program.assemble()
}

/// The filter for the [guard](super::guard): the calls that watching and
/// covering take, and no other. Whatever else it tries ends it, and with it
/// the run.
#[must_use]
pub fn guard_filter() -> Vec<Instruction> {
    let mut program = Program::default();
    let (native, allowed) = (program.label(), program.label());
    let foreign = program.label();
    program.load(ARCHITECTURE);
    program.branch(Compare::Equal(NATIVE), native, foreign);
    program.bind(foreign);
    program.ret(libc::SECCOMP_RET_KILL_PROCESS);
    program.bind(native);
    program.load(NUMBER);
    for call in GUARDS {
        let next = program.label();
        program.branch(Compare::Equal(number(*call)), allowed, next);
        program.bind(next);
    }
    program.ret(libc::SECCOMP_RET_KILL_PROCESS);
    program.bind(allowed);
    program.ret(libc::SECCOMP_RET_ALLOW);
    program.assemble()
}

/// What the guard calls: it reads events, looks at names by descriptor, copies
/// and attaches mounts, and tells the supervisor.
const GUARDS: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_ppoll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_openat2,
    libc::SYS_close,
    libc::SYS_statx,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_sendmsg,
    libc::SYS_fcntl,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_rt_sigreturn,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// `struct seccomp_data` of linux/seccomp.h: the call's number, its
/// architecture, 8 bytes of address, six 64-bit arguments.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

/// `AUDIT_ARCH_*` of linux/audit.h: the machine's ELF number, 64 bits, little
/// endian.
#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xC000_00B7;

/// file_setattr(2) of Linux 6.17, the newest call that was looked at for this
/// filter; from 424 on the numbers are the same on every machine.
const NEWEST_KNOWN: u32 = 469;

// Not in every libc yet.
const SYS_FCHMODAT2: c_long = 452;
const SYS_OPEN_TREE_ATTR: c_long = 467;

/// asm-generic/ioctls.h.
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541C;
const TIOCSETD: u32 = 0x5423;

/// The type and number of an ioctl(2) without its direction and size, which
/// differ between the versions of one.
const IOCTL_NAME: u32 = 0xFFFF;
const IOCTL_TYPE: u32 = 0xFF00;
/// linux/btrfs.h.
const BTRFS_IOC_SNAP_CREATE: u32 = 0x9401;
const BTRFS_IOC_SNAP_CREATE_V2: u32 = 0x9417;
const BCACHEFS: u32 = 0xBC00;

const F_SETLEASE: u32 = libc::F_SETLEASE as u32;
const F_UNLCK: u32 = libc::F_UNLCK as u32;
/// linux/fcntl.h, Linux 6.19: a lease by another name, for folders as well.
const F_SETDELEG: u32 = 1024 + 16;
/// linux/ioprio.h.
const IOPRIO_WHO_PGRP: u32 = 2;

/// `SOCK_TYPE_MASK` of linux/net.h: the rest are flags.
const SOCKET_TYPE: u32 = 0xF;
/// linux/net.h; AF_INET with it means AF_PACKET.
const SOCK_PACKET: c_int = 10;
/// linux/in.h, Linux 6.11.
const IPPROTO_SMC: c_int = 256;

const SET_ID: u32 = S_ISUID | S_ISGID;
/// With one of these open(2) looks at its mode. The second is O_TMPFILE without
/// O_DIRECTORY.
const CREATES: u32 = (O_CREAT | 0o20_000_000) as u32;

/// clone(2)'s CLONE_NEW*. Bit 7, CLONE_NEWTIME, is part of the exit signal here.
const NEW_NAMESPACE: u32 = (CLONE_NEWNS
    | CLONE_NEWCGROUP
    | CLONE_NEWUTS
    | CLONE_NEWIPC
    | CLONE_NEWUSER
    | CLONE_NEWPID
    | CLONE_NEWNET) as u32;
/// What unshare(2) may take apart: threads of one process. Every other bit makes
/// a namespace, or may in a later kernel.
const UNSHARE_WITHIN: u32 =
    (CLONE_FILES | CLONE_FS | CLONE_SIGHAND | CLONE_SYSVSEM | CLONE_THREAD | CLONE_VM) as u32;

/// What a call comes to when all of `when` holds. Of several for one call, which
/// stand next to each other, the first that fits counts; when none fits, the
/// call is allowed.
struct Rule {
    call: c_long,
    when: &'static [Test],
    then: Verdict,
}

/// A test on the lower 32 bits of an argument, counted from 0.
///
/// Every argument tested here is an `int`, an `unsigned int` or a `mode_t`: the
/// kernel drops the upper half, so it must not count here.
#[derive(Debug, Clone, Copy)]
enum Test {
    Is(u32, u32),
    Masked { argument: u32, mask: u32, is: u32 },
    AnyBit(u32, u32),
}

#[derive(Debug, Clone, Copy)]
enum Verdict {
    Allow,
    FailWith(c_int),
    AskBroker,
}

const fn rule(call: c_long, when: &'static [Test], then: Verdict) -> Rule {
    Rule { call, when, then }
}

use Test::{AnyBit, Is, Masked};
use Verdict::{Allow, AskBroker, FailWith};

const fn socket_type(is: c_int) -> Test {
    Masked { argument: 1, mask: SOCKET_TYPE, is: is as u32 }
}

const fn family(is: c_int) -> Test {
    Is(0, is as u32)
}

const fn protocol(is: c_int) -> Test {
    Is(2, is as u32)
}

/// The calls whose arguments decide, the most frequent first.
const BY_ARGUMENT: &[Rule] = &[
    // A set-user-ID or set-group-ID file that root makes in a written folder is
    // a way for everyone on the host to become root, and one that an ordinary
    // user makes to become that user. mkdir(2) takes no such bits, and openat2(2),
    // whose mode is in memory, is refused below.
    rule(libc::SYS_openat, &[AnyBit(2, CREATES), AnyBit(3, SET_ID)], FailWith(EPERM)),
    #[cfg(target_arch = "x86_64")]
    rule(libc::SYS_open, &[AnyBit(1, CREATES), AnyBit(2, SET_ID)], FailWith(EPERM)),
    // TIOCSTI and TIOCLINUX type into the terminal that the caller's shell reads.
    rule(libc::SYS_ioctl, &[Is(1, TIOCSTI)], FailWith(EPERM)),
    rule(libc::SYS_ioctl, &[Is(1, TIOCLINUX)], FailWith(EPERM)),
    // TIOCSETD loads line disciplines into the kernel, and leaves the caller's
    // terminal with one.
    rule(libc::SYS_ioctl, &[Is(1, TIOCSETD)], FailWith(EPERM)),
    // A snapshot holds the whole subvolume, also what is hidden in here or is
    // outside of the folder that was granted.
    rule(libc::SYS_ioctl, &[ioctl_name(BTRFS_IOC_SNAP_CREATE)], FailWith(EPERM)),
    rule(libc::SYS_ioctl, &[ioctl_name(BTRFS_IOC_SNAP_CREATE_V2)], FailWith(EPERM)),
    rule(
        libc::SYS_ioctl,
        &[Masked { argument: 1, mask: IOCTL_TYPE, is: BCACHEFS }],
        FailWith(EPERM),
    ),
    // A lease lets its holder keep every other program's open(2) of the file
    // waiting, for 45 s by default. The kernel reads the command as an
    // `unsigned int`, and no lease is F_UNLCK with more above it.
    rule(libc::SYS_fcntl, &[Is(1, F_SETLEASE), Is(2, F_UNLCK)], Allow),
    rule(libc::SYS_fcntl, &[Is(1, F_SETLEASE)], FailWith(EPERM)),
    rule(libc::SYS_fcntl, &[Is(1, F_SETDELEG)], FailWith(EPERM)),
    // New namespaces come with every capability in them: most of the kernel's
    // holes are behind those.
    rule(libc::SYS_clone, &[AnyBit(0, NEW_NAMESPACE)], FailWith(EPERM)),
    rule(libc::SYS_unshare, &[AnyBit(0, !UNSHARE_WITHIN)], FailWith(EPERM)),
    // A path may lead to a socket of the host's, which neither read-only mounts
    // nor Landlock close. The broker looks and connects itself.
    rule(libc::SYS_connect, &[], AskBroker),
    // A datagram socket names its peer in each sendto(2), past the broker, and
    // so does one end of a pair. SOCK_RAW is SOCK_DGRAM by another name. Stream
    // and seqpacket sockets take no address once connected, and none before.
    rule(libc::SYS_socket, &[family(AF_UNIX), socket_type(SOCK_DGRAM)], FailWith(EACCES)),
    rule(libc::SYS_socket, &[family(AF_UNIX), socket_type(SOCK_RAW)], FailWith(EACCES)),
    rule(libc::SYS_socket, &[family(AF_UNIX)], Allow),
    // AF_PACKET by its old name.
    rule(libc::SYS_socket, &[family(AF_INET), socket_type(SOCK_PACKET)], FailWith(EAFNOSUPPORT)),
    // SMC's data may go by RDMA devices, which all network namespaces share.
    rule(libc::SYS_socket, &[family(AF_INET), protocol(IPPROTO_SMC)], FailWith(EPROTONOSUPPORT)),
    rule(libc::SYS_socket, &[family(AF_INET6), protocol(IPPROTO_SMC)], FailWith(EPROTONOSUPPORT)),
    // The network namespace holds these. getifaddrs(3) asks NETLINK_ROUTE.
    rule(libc::SYS_socket, &[family(AF_INET)], Allow),
    rule(libc::SYS_socket, &[family(AF_INET6)], Allow),
    rule(libc::SYS_socket, &[family(AF_NETLINK), protocol(NETLINK_ROUTE)], Allow),
    // AF_VSOCK and AF_QIPCRTR have no namespace, AF_ALG and the many others are
    // parts of the kernel that nothing here needs.
    rule(libc::SYS_socket, &[], FailWith(EAFNOSUPPORT)),
    rule(libc::SYS_socketpair, &[family(AF_UNIX), socket_type(SOCK_DGRAM)], FailWith(EACCES)),
    rule(libc::SYS_socketpair, &[family(AF_UNIX), socket_type(SOCK_RAW)], FailWith(EACCES)),
    rule(libc::SYS_socketpair, &[family(AF_UNIX)], Allow),
    // What the kernel says for nearly all families; AF_TIPC has pairs.
    rule(libc::SYS_socketpair, &[], FailWith(EOPNOTSUPP)),
    // Set-user-ID and set-group-ID, as above.
    #[cfg(target_arch = "x86_64")]
    rule(libc::SYS_creat, &[AnyBit(1, SET_ID)], FailWith(EPERM)),
    #[cfg(target_arch = "x86_64")]
    rule(libc::SYS_chmod, &[AnyBit(1, SET_ID)], FailWith(EPERM)),
    rule(libc::SYS_fchmod, &[AnyBit(1, SET_ID)], FailWith(EPERM)),
    rule(libc::SYS_fchmodat, &[AnyBit(2, SET_ID)], FailWith(EPERM)),
    rule(SYS_FCHMODAT2, &[AnyBit(2, SET_ID)], FailWith(EPERM)),
    #[cfg(target_arch = "x86_64")]
    rule(libc::SYS_mknod, &[AnyBit(1, SET_ID)], FailWith(EPERM)),
    rule(libc::SYS_mknodat, &[AnyBit(2, SET_ID)], FailWith(EPERM)),
    // The caller's shell is in the same process group.
    rule(libc::SYS_setpriority, &[Is(0, libc::PRIO_PGRP)], FailWith(EPERM)),
    rule(libc::SYS_ioprio_set, &[Is(0, IOPRIO_WHO_PGRP)], FailWith(EPERM)),
];

const fn ioctl_name(is: u32) -> Test {
    Masked { argument: 1, mask: IOCTL_NAME, is }
}

/// The calls refused whatever their arguments: `EPERM` for what needs a right
/// that nobody has in here, `ENOSYS` where programs fall back to an older call.
const REFUSED: &[(c_int, &[c_long])] = &[
    // The arguments are in memory, which can change after a look at them.
    // Programs and libraries fall back to clone(2) and openat(2).
    (ENOSYS, &[libc::SYS_clone3, libc::SYS_openat2]),
    // Its operations pass no filter: sockets, opens and connects among them.
    (ENOSYS, &[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register]),
    // Mounts hold what is hidden and what is read only.
    (
        EPERM,
        &[
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_pivot_root,
            libc::SYS_open_tree,
            SYS_OPEN_TREE_ATTR,
            libc::SYS_move_mount,
            libc::SYS_mount_setattr,
            libc::SYS_fsopen,
            libc::SYS_fsconfig,
            libc::SYS_fsmount,
            libc::SYS_fspick,
            libc::SYS_setns,
        ],
    ),
    // Opens files by number, past every folder.
    (EPERM, &[libc::SYS_open_by_handle_at]),
    // Keyrings have no namespace: the caller's session, and its secrets, are in them.
    (EPERM, &[libc::SYS_keyctl, libc::SYS_add_key, libc::SYS_request_key]),
    // Widely used to attack the kernel, and nothing here needs them. userfaultfd
    // also holds the kernel still in the middle of a copy.
    (
        EPERM,
        &[
            libc::SYS_bpf,
            libc::SYS_perf_event_open,
            libc::SYS_userfaultfd,
            libc::SYS_kcmp,
            libc::SYS_fanotify_init,
            libc::SYS_lookup_dcookie,
            libc::SYS_nfsservctl,
        ],
    ),
    // The machine: its kernel, disks, accounts, clock and log.
    (
        EPERM,
        &[
            libc::SYS_init_module,
            libc::SYS_finit_module,
            libc::SYS_delete_module,
            libc::SYS_kexec_load,
            libc::SYS_kexec_file_load,
            libc::SYS_reboot,
            libc::SYS_swapon,
            libc::SYS_swapoff,
            libc::SYS_quotactl,
            libc::SYS_quotactl_fd,
            libc::SYS_acct,
            libc::SYS_settimeofday,
            libc::SYS_clock_settime,
            libc::SYS_syslog,
            libc::SYS_vhangup,
        ],
    ),
    #[cfg(target_arch = "x86_64")]
    (
        EPERM,
        &[
            libc::SYS__sysctl,
            libc::SYS_uselib,
            // Hardware ports.
            libc::SYS_iopl,
            libc::SYS_ioperm,
            // Segments for 16-bit and 32-bit code (Wine, DOSEMU), whose calls
            // are refused anyway; it had holes of its own.
            libc::SYS_modify_ldt,
        ],
    ),
];

/// Where the refusals that many calls share are.
struct Refusals {
    eperm: Label,
    enosys: Label,
}

impl Refusals {
    fn of(&self, errno: c_int) -> Label {
        match errno {
            EPERM => self.eperm,
            ENOSYS => self.enosys,
            other => unreachable!("REFUSED has only EPERM and ENOSYS, not {other}"),
        }
    }
}

/// Goes on with the number of a native call that is known here. The others, of
/// 32-bit tables and x32's, mean something else by the same numbers; x32's have
/// bit 30 set and so are above the newest.
fn refuse_other_tables(program: &mut Program, refusals: &Refusals) {
    let (native, known) = (program.label(), program.label());
    program.load(ARCHITECTURE);
    program.branch(Compare::Equal(NATIVE), native, refusals.enosys);
    program.bind(native);
    program.load(NUMBER);
    program.branch(Compare::Above(NEWEST_KNOWN), refusals.enosys, known);
    program.bind(known);
}

fn divert(program: &mut Program, call: c_long, to: Label) {
    let next = program.label();
    program.branch(Compare::Equal(number(call)), to, next);
    program.bind(next);
}

fn judge_arguments(program: &mut Program, rules: &[Rule]) {
    let (this, other) = (program.label(), program.label());
    program.branch(Compare::Equal(number(rules[0].call)), this, other);
    program.bind(this);
    for rule in rules {
        let next = program.label();
        for test in rule.when {
            go_on_when(program, *test, next);
        }
        program.ret(rule.then.action());
        program.bind(next);
    }
    let decided = rules.last().is_some_and(|rule| rule.when.is_empty());
    if !decided {
        program.ret(libc::SECCOMP_RET_ALLOW);
    }
    program.bind(other);
}

fn go_on_when(program: &mut Program, test: Test, otherwise: Label) {
    let holds = program.label();
    let (argument, mask, compare) = match test {
        Is(argument, number) => (argument, None, Compare::Equal(number)),
        Masked { argument, mask, is } => (argument, Some(mask), Compare::Equal(is)),
        AnyBit(argument, bits) => (argument, None, Compare::AnyBit(bits)),
    };
    // The lower half comes first: both machines are little endian.
    program.load(ARGUMENTS + 8 * argument);
    if let Some(mask) = mask {
        program.and(mask);
    }
    program.branch(compare, holds, otherwise);
    program.bind(holds);
}

impl Verdict {
    fn action(self) -> u32 {
        match self {
            Allow => libc::SECCOMP_RET_ALLOW,
            FailWith(errno) => fail_with(errno),
            AskBroker => libc::SECCOMP_RET_USER_NOTIF,
        }
    }
}

fn fail_with(errno: c_int) -> u32 {
    libc::SECCOMP_RET_ERRNO | u32::try_from(errno).expect("errors are positive")
}

fn number(call: c_long) -> u32 {
    u32::try_from(call).expect("numbers of calls are small and positive")
}

#[cfg(test)]
mod tests;
