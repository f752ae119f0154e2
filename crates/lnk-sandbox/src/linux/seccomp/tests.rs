use proptest::prelude::*;

use super::*;

/// A call as the kernel shows it to a filter.
#[derive(Debug, Clone, Copy)]
struct Call {
    number: u32,
    architecture: u32,
    arguments: [u64; 6],
}

impl Call {
    fn native(call: c_long, arguments: &[u64]) -> Self {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        Self { number: number(call), architecture: NATIVE, arguments: all }
    }

    /// The same for the kernel when the arguments are 32-bit ones.
    fn with_upper_halves(mut self, garbage: u32) -> Self {
        for argument in &mut self.arguments {
            *argument |= u64::from(garbage) << 32;
        }
        self
    }

    fn word(&self, offset: u32) -> u32 {
        match offset {
            NUMBER => self.number,
            ARCHITECTURE => self.architecture,
            _ => {
                let word = (offset - ARGUMENTS) / 4;
                let shift = 32 * (word % 2);
                (self.arguments[word as usize / 2] >> shift) as u32
            }
        }
    }
}

/// What the kernel's BPF comes to; panics where the kernel would refuse the
/// program.
fn run(filter: &[Instruction], call: &Call) -> u32 {
    let mut accumulator = 0;
    let mut at = 0;
    loop {
        let Instruction { code, jt, jf, k } = filter[at];
        at += 1;
        let jump = |holds| usize::from(if holds { jt } else { jf });
        match u32::from(code) {
            code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                assert!(k.is_multiple_of(4) && k < 64, "load at {k}");
                accumulator = call.word(k);
            }
            code if code == libc::BPF_ALU | libc::BPF_AND | libc::BPF_K => accumulator &= k,
            code if code == libc::BPF_RET | libc::BPF_K => return k,
            code if code == libc::BPF_JMP | libc::BPF_JA => at += k as usize,
            code if code == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K => {
                at += jump(accumulator == k);
            }
            code if code == libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K => {
                at += jump(accumulator > k);
            }
            code if code == libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K => {
                at += jump(accumulator & k != 0);
            }
            code => panic!("operation {code:#x}"),
        }
    }
}

fn judge(call: &Call) -> u32 {
    run(&program_filter(Watch::Nothing), call)
}

const ALLOWED: u32 = libc::SECCOMP_RET_ALLOW;
const ASKED: u32 = libc::SECCOMP_RET_USER_NOTIF;

/// Also with garbage where the kernel doesn't look.
#[track_caller]
fn expect(call: c_long, arguments: &[u64], action: u32) {
    let call = Call::native(call, arguments);
    for garbage in [0, 1, u32::MAX] {
        let call = call.with_upper_halves(garbage);
        assert_eq!(judge(&call), action, "{call:x?}");
    }
}

#[track_caller]
fn refused(call: c_long, arguments: &[u64], errno: c_int) {
    expect(call, arguments, fail_with(errno));
}

#[track_caller]
fn allowed(call: c_long, arguments: &[u64]) {
    expect(call, arguments, ALLOWED);
}

#[test]
fn is_short_enough_for_the_kernel() {
    assert!(program_filter(Watch::ExecsAndMemfds).len() <= 4096);
}

#[test]
fn rules_for_one_call_stand_together() {
    let mut calls: Vec<c_long> = BY_ARGUMENT
        .chunk_by(|one, next| one.call == next.call)
        .map(|rules| rules[0].call)
        .chain(REFUSED.iter().flat_map(|(_, calls)| calls.iter().copied()))
        .collect();
    let all = calls.len();
    calls.sort_unstable();
    calls.dedup();
    assert_eq!(calls.len(), all, "a call that is judged in two places");
}

#[test]
fn every_listed_call_is_refused_whatever_its_arguments() {
    for (errno, calls) in REFUSED {
        for call in *calls {
            refused(*call, &[], *errno);
            refused(*call, &[u64::MAX; 6], *errno);
        }
    }
}

#[test]
fn ordinary_calls_are_allowed() {
    for call in [
        libc::SYS_read,
        libc::SYS_execve,
        libc::SYS_mmap,
        libc::SYS_ptrace,
        libc::SYS_memfd_create,
        libc::SYS_seccomp,
        libc::SYS_pidfd_getfd,
        libc::SYS_bind,
        libc::SYS_sendto,
        libc::SYS_mkdirat,
        libc::SYS_personality,
        libc::SYS_adjtimex,
    ] {
        allowed(call, &[u64::MAX; 6]);
    }
}

#[test]
fn calls_newer_than_known_do_not_exist() {
    allowed(c_long::from(NEWEST_KNOWN), &[]);
    refused(c_long::from(NEWEST_KNOWN) + 1, &[], ENOSYS);
    refused(0x4000_0000, &[], ENOSYS);
    refused(c_long::from(u32::MAX), &[], ENOSYS);
}

#[test]
fn connect_is_asked_about() {
    expect(libc::SYS_connect, &[3, 0x1000, 110], ASKED);
}

#[test]
fn what_is_watched_is_asked_about_and_the_rest_judged_as_before() {
    let (execs, memfds) = ([libc::SYS_execve, libc::SYS_execveat], [libc::SYS_memfd_create]);
    for (watch, asked, allowed) in [
        (Watch::Nothing, [].as_slice(), [&execs[..], &memfds].concat()),
        (Watch::Execs, &execs, memfds.to_vec()),
        (Watch::ExecsAndMemfds, &[&execs[..], &memfds].concat(), vec![]),
    ] {
        let filter = program_filter(watch);
        let judge = |call| run(&filter, &Call::native(call, &[u64::MAX; 6]));
        for call in asked {
            assert_eq!(judge(*call), ASKED, "{watch:?}: {call}");
        }
        for call in allowed.into_iter().chain([libc::SYS_read, libc::SYS_memfd_secret]) {
            assert_eq!(judge(call), ALLOWED, "{watch:?}: {call}");
        }
        assert_eq!(judge(libc::SYS_connect), ASKED);
        assert_eq!(judge(libc::SYS_setns), fail_with(EPERM));
        let mut foreign = Call::native(libc::SYS_execve, &[]);
        foreign.architecture ^= 1;
        assert_eq!(run(&filter, &foreign), fail_with(ENOSYS));
    }
}

#[test]
fn terminal_input_can_not_be_faked() {
    for command in [TIOCSTI, TIOCLINUX, TIOCSETD] {
        refused(libc::SYS_ioctl, &[0, command.into(), 0x1000], EPERM);
        allowed(libc::SYS_ioctl, &[command.into(), u64::from(command) + 0x1_0000, command.into()]);
    }
    for command in [libc::TIOCGWINSZ, libc::TIOCSPGRP, libc::TCSETS, libc::FIONREAD] {
        allowed(libc::SYS_ioctl, &[0, command, 0x1000]);
    }
}

#[test]
fn leases_can_not_be_taken_only_given_back() {
    let (read, write, none) = (libc::F_RDLCK as u64, libc::F_WRLCK as u64, libc::F_UNLCK as u64);
    for kind in [read, write] {
        refused(libc::SYS_fcntl, &[3, F_SETLEASE.into(), kind], EPERM);
    }
    refused(libc::SYS_fcntl, &[3, F_SETDELEG.into(), 0x1000], EPERM);
    allowed(libc::SYS_fcntl, &[3, F_SETLEASE.into(), none]);
    for command in [libc::F_GETLEASE, libc::F_GETFL, libc::F_SETLK, libc::F_DUPFD_CLOEXEC] {
        allowed(libc::SYS_fcntl, &[F_SETLEASE.into(), command as u64, write]);
    }
}

#[test]
fn the_shells_process_group_keeps_its_priority() {
    for (call, group) in [(libc::SYS_setpriority, 1), (libc::SYS_ioprio_set, 2)] {
        for which in 0..4 {
            let expected = if which == group { fail_with(EPERM) } else { ALLOWED };
            expect(call, &[which, 0, 10], expected);
        }
    }
}

#[test]
fn subvolumes_can_not_be_copied() {
    let struct_4096_bytes = 0x5000_0000;
    for command in
        [struct_4096_bytes | 0x9401, struct_4096_bytes | 0x9417, 0x4020_bc10, 0x4028_bc1d]
    {
        refused(libc::SYS_ioctl, &[3, command], EPERM);
    }
    let subvol_create_v2 = struct_4096_bytes | 0x9418;
    for command in [subvol_create_v2, libc::FICLONE] {
        allowed(libc::SYS_ioctl, &[3, command]);
    }
}

/// A call that takes a mode, and the arguments before that.
fn calls_with_a_mode() -> Vec<(c_long, Vec<u64>)> {
    let create = u64::from(CREATES) & 0o100;
    let unnamed = u64::from(CREATES) & !0o100;
    vec![
        (libc::SYS_openat, vec![3, 0x1000, create | 2]),
        (libc::SYS_openat, vec![3, 0x1000, unnamed | 2]),
        (libc::SYS_fchmod, vec![3]),
        (libc::SYS_fchmodat, vec![3, 0x1000]),
        (SYS_FCHMODAT2, vec![3, 0x1000]),
        (libc::SYS_mknodat, vec![3, 0x1000]),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_open, vec![0x1000, create | 2]),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_open, vec![0x1000, unnamed | 2]),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_creat, vec![0x1000]),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_chmod, vec![0x1000]),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_mknod, vec![0x1000]),
    ]
}

#[test]
fn files_can_not_become_set_user_id() {
    for (call, before) in calls_with_a_mode() {
        let with = |mode| [before.clone(), vec![mode]].concat();
        for mode in [0o4755, 0o2755, 0o6000, 0o7777, 0o100_4755] {
            refused(call, &with(mode), EPERM);
        }
        for mode in [0, 0o755, 0o1777, 0o100_644] {
            allowed(call, &with(mode));
        }
    }
}

#[test]
fn the_mode_of_an_open_that_creates_nothing_is_not_looked_at() {
    let read_write_truncate = 0o1002;
    let directory = libc::O_DIRECTORY as u64;
    for flags in [0, read_write_truncate, directory] {
        allowed(libc::SYS_openat, &[3, 0x1000, flags, 0o7777]);
        #[cfg(target_arch = "x86_64")]
        allowed(libc::SYS_open, &[0x1000, flags, 0o7777]);
    }
}

#[test]
fn namespaces_can_not_be_made() {
    let namespaces = [
        CLONE_NEWNS,
        CLONE_NEWCGROUP,
        CLONE_NEWUTS,
        CLONE_NEWIPC,
        CLONE_NEWUSER,
        CLONE_NEWPID,
        CLONE_NEWNET,
    ];
    for flag in namespaces {
        let flag = flag as u64;
        refused(libc::SYS_clone, &[flag | libc::SIGCHLD as u64], EPERM);
        refused(libc::SYS_unshare, &[flag], EPERM);
        refused(libc::SYS_unshare, &[flag | CLONE_FS as u64], EPERM);
    }
    let new_time = 0x80;
    refused(libc::SYS_unshare, &[new_time], EPERM);
    allowed(libc::SYS_unshare, &[(CLONE_FS | CLONE_FILES) as u64]);
    allowed(libc::SYS_unshare, &[0]);
    let fork = 0x0120_0011;
    let vfork = 0x4111;
    let thread = 0x003d_0f00;
    for flags in [fork, vfork, thread] {
        allowed(libc::SYS_clone, &[flags]);
    }
}

#[test]
fn sockets_are_of_the_families_that_a_namespace_holds() {
    let flags = (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as u64;
    for family in 0..64 {
        for kind in [1, 2, 3, 5, 10, 1 | flags, 2 | flags, 3 | flags, 5 | flags] {
            for protocol in [0, 6, 16, 256] {
                let expected = match (family, kind & 0xf, protocol) {
                    (1, 2 | 3, _) => fail_with(EACCES),
                    (1, _, _) => ALLOWED,
                    (2, 10, _) => fail_with(EAFNOSUPPORT),
                    (2 | 10, _, 256) => fail_with(EPROTONOSUPPORT),
                    (2 | 10, _, _) | (16, _, 0) => ALLOWED,
                    _ => fail_with(EAFNOSUPPORT),
                };
                expect(libc::SYS_socket, &[family, kind, protocol], expected);
            }
        }
    }
}

#[test]
fn pairs_are_of_unix_streams() {
    for (kind, expected) in [
        (libc::SOCK_STREAM, ALLOWED),
        (libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, ALLOWED),
        (SOCK_DGRAM, fail_with(EACCES)),
        (SOCK_DGRAM | libc::SOCK_NONBLOCK, fail_with(EACCES)),
        (SOCK_RAW, fail_with(EACCES)),
    ] {
        expect(libc::SYS_socketpair, &[1, kind as u64, 0], expected);
    }
    let tipc = 30;
    for family in [2, 10, tipc] {
        refused(libc::SYS_socketpair, &[family, 1, 0], EOPNOTSUPP);
    }
}

/// A chain of tests for numbers, far and near, as its reader would expect it
/// to behave: the first `Equal` that fits returns its place in the chain.
fn chain(gaps: &[usize]) -> Vec<Instruction> {
    let mut program = Program::default();
    let found: Vec<Label> = gaps.iter().map(|_| program.label()).collect();
    program.load(NUMBER);
    for (each, gap) in gaps.iter().enumerate() {
        let next = program.label();
        program.branch(Compare::Equal(each as u32), found[each], next);
        program.bind(next);
        for _ in 0..*gap {
            program.and(u32::MAX);
        }
    }
    program.ret(u32::MAX);
    for (each, label) in found.into_iter().enumerate() {
        program.bind(label);
        program.ret(each as u32);
    }
    program.assemble()
}

/// Branches whose `nearer` side and whose `farther` one are that many
/// instructions away.
fn fork_in_the_road(nearer: usize, farther: usize, near_when_odd: bool) -> Vec<Instruction> {
    let mut program = Program::default();
    let (start, near, far) = (program.label(), program.label(), program.label());
    program.load(NUMBER);
    program.branch(Compare::Above(10), far, start);
    program.bind(start);
    let (odd, even) = if near_when_odd { (near, far) } else { (far, near) };
    program.branch(Compare::AnyBit(1), odd, even);
    for _ in 0..nearer {
        program.ret(99);
    }
    program.bind(near);
    for _ in nearer..farther {
        program.ret(0);
    }
    program.bind(far);
    program.ret(1);
    program.assemble()
}

#[test]
fn jumps_at_the_edge_of_eight_bits_arrive() {
    let edge = (250..260).flat_map(|far| (0..far).map(move |near| (near, far)));
    let beyond = [(253, 600), (254, 600), (255, 600), (256, 600), (600, 601)];
    for (nearer, farther) in edge.chain(beyond) {
        for near_when_odd in [false, true] {
            let filter = fork_in_the_road(nearer, farther, near_when_odd);
            for number in [3, 4, 11] {
                let far = number > 10 || (number % 2 == 1) != near_when_odd;
                let call = Call { number, architecture: 0, arguments: [0; 6] };
                assert_eq!(run(&filter, &call), u32::from(far), "{nearer} {farther} {number}");
            }
        }
    }
}

proptest! {
    #[test]
    fn jumps_arrive_near_and_far(gaps in prop::collection::vec(0usize..300, 1..12)) {
        let filter = chain(&gaps);
        for number in 0..gaps.len() as u32 {
            let call = Call { number, architecture: 0, arguments: [0; 6] };
            prop_assert_eq!(run(&filter, &call), number);
        }
        let call = Call { number: 1000, architecture: 0, arguments: [0; 6] };
        prop_assert_eq!(run(&filter, &call), u32::MAX);
    }

    #[test]
    fn no_call_of_another_table_is_allowed(
        number: u32,
        small in 0u32..1024,
        architecture: u32,
        arguments: [u64; 6],
    ) {
        prop_assume!(architecture != NATIVE);
        let i386 = 0x4000_0003;
        let arm = 0x4000_0028;
        for number in [number, small] {
            for architecture in [architecture, i386, arm] {
                let call = Call { number, architecture, arguments };
                prop_assert_eq!(judge(&call), fail_with(ENOSYS));
            }
            let x32 = Call { number: number | 0x4000_0000, architecture: NATIVE, arguments };
            prop_assert_eq!(judge(&x32), fail_with(ENOSYS));
        }
    }

    #[test]
    fn every_call_comes_to_something_known(number in 0u32..1024, arguments: [u64; 6]) {
        let action = judge(&Call { number, architecture: NATIVE, arguments });
        let fails = action & libc::SECCOMP_RET_ACTION_FULL == libc::SECCOMP_RET_ERRNO;
        prop_assert!(action == ALLOWED || action == ASKED || fails, "{:#x}", action);
    }
}
