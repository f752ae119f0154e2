//! The known gaps.

/// Each gap by its name in docs/security.md, and in one line.
pub const GAPS: [(&str, &str); 14] = [
    ("What you open is open", "change what runs by your own hand in a --write folder"),
    (
        "A moment for files replaced from outside",
        "read or write a closed file that is replaced outside, for a moment",
    ),
    ("A listed program does what it wants", "run code of its own in a listed program"),
    ("Hard links made before the run", "write a dot file by a hard link made before the run"),
    ("Placeholders can be seen", "be noticed outside by empty folders in place of dot files"),
    (
        "Two sandboxes with one write folder",
        "move files of another sandbox's in a shared --write folder",
    ),
    ("Process group", "signal its own job (kernels before 6.12)"),
    ("A program that stops itself", "stop the job it was started in"),
    ("Descriptors you pass", "use the files given as standard input, output and error"),
    ("The kernel shows itself", "see processor, memory, load, uptime and the kernel's version"),
    ("Sockets in a granted folder", "have no sockets of its own in a folder on btrfs and the like"),
    ("No limits of what it uses", "use up memory, processor, disk and processes"),
    ("One user inside", "run nothing that needs a second user"),
    ("Untested", "meet a system that this was never run on"),
];
