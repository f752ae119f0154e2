//! `lnk completions`, hidden: for packagers and for whoever installs by hand.
//!
//! What clap prints knows commands and flags. The names of sandboxes are asked for when
//! they are completed, of `lnk sandbox names`, which prints only plain words: nothing of
//! it is expanded by a shell.

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::Cli;
use crate::error::Result;
use crate::ui;

/// Completes names before the rest, and files where no name fits.
const BASH: &str = r#"
_lnk_with_names() {
    _lnk "$@"
    local at=$COMP_CWORD
    local cur="${COMP_WORDS[at]}" prev="${COMP_WORDS[at-1]}"
    if [[ $cur == = ]]; then
        cur=
    elif [[ $prev == = ]]; then
        prev="${COMP_WORDS[at-2]}"
    fi
    case "${COMP_WORDS[1]} ${COMP_WORDS[2]} $prev" in
        "sandbox pause "*|"sandbox resume "*) [[ $cur == -* ]] && return ;;
        "sandbox log --sandbox") ;;
        *) return ;;
    esac
    COMPREPLY=( $(compgen -W "$(lnk sandbox names -- "${COMP_WORDS[@]}" 2>/dev/null)" -- "$cur") )
}
"#;

const ZSH: &str = r#"
(( $+functions[_lnk_names] )) ||
_lnk_names() {
    local -a names
    names=(${(f)"$(lnk sandbox names -- "${words[@]}" 2>/dev/null)"})
    compadd "$@" -a names || _files
}
"#;

const FISH: &str = r#"
complete -c lnk -n "__fish_lnk_using_subcommand sandbox; and __fish_seen_subcommand_from pause resume" -a "(lnk sandbox names -- (commandline -opc) 2>/dev/null)"
complete -c lnk -n "__fish_lnk_using_subcommand sandbox; and __fish_seen_subcommand_from log" -l sandbox -r -a "(lnk sandbox names -- (commandline -opc) 2>/dev/null)"
"#;

/// Print a shell's completions for lnk
#[derive(clap::Args)]
pub struct Args {
    /// The shell
    shell: Shell,
}

pub fn completions(args: &Args) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "lnk", &mut script);
    let script = String::from_utf8(script).expect("clap writes text");
    ui::generated(with_names(args.shell, script).as_bytes())?;
    Ok(0)
}

fn with_names(shell: Shell, script: String) -> String {
    match shell {
        Shell::Bash => before("\nif [[ \"${BASH_VERSINFO", BASH, &script)
            .replace("complete -F _lnk ", "complete -F _lnk_with_names "),
        Shell::Zsh => {
            let lines = script.lines().map(|line| zsh_line(line) + "\n");
            before("\nif [ \"$funcstack", ZSH, &lines.collect::<String>())
        }
        Shell::Fish => script + FISH,
        _ => script,
    }
}

/// A line of zsh's script, where it is about a name with what completes that.
fn zsh_line(line: &str) -> String {
    let is_name = line.starts_with("':name -- ") || line.starts_with("'--sandbox=[");
    let ends = [":_default' \\", ":_files' \\"];
    match ends.into_iter().find_map(|end| line.strip_suffix(end)) {
        Some(begins) if is_name => format!("{begins}:_lnk_names' \\"),
        _ => line.to_owned(),
    }
}

fn before(place: &str, inserted: &str, script: &str) -> String {
    script.replacen(place, &(inserted.to_owned() + place), 1)
}
