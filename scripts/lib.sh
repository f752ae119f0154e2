# What start and test share. Sourced, with errexit on.

say() { printf '\n== %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

need_rust() {
    command -v cargo > /dev/null || die 'cargo is missing: install a Rust toolchain, 1.95 or newer'
}

as_root() {
    if [[ $(id -u) == 0 ]]; then "$@"; else sudo "$@"; fi
}

# install_missing PROGRAM:PACKAGE…: installs the packages whose program isn't on
# PATH, or, written with a /, isn't a file; with no program, those that dpkg
# doesn't know as installed. What's there by any other way is left as it is.
install_missing() {
    local entry program packages=()
    for entry; do
        program=${entry%%:*}
        case $program in
            '') dpkg -s "${entry#*:}" > /dev/null 2>&1 || packages+=("${entry#*:}") ;;
            /*) [[ -e $program ]] || packages+=("${entry#*:}") ;;
            *) command -v "$program" > /dev/null || packages+=("${entry#*:}") ;;
        esac
    done
    [[ ${#packages[@]} != 0 ]] || return 0
    command -v apt-get > /dev/null || die "install these first: ${packages[*]}"
    printf 'installing %s\n' "${packages[*]}"
    # A source that can't be reached may not be the one that is needed.
    as_root apt-get -q update || printf 'apt-get update failed, ignoring\n' >&2
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -qy install --no-install-recommends "${packages[@]}" > /dev/null
}

host_tuple() { rustc --print host-tuple; }
target_dir() { printf '%s\n' "${CARGO_TARGET_DIR:-$PWD/target}"; }

# Runs lnk, from $lnk, and shows the command as a user would type it.
show() {
    local word
    printf '$'
    for word; do
        if [[ $word =~ ^[A-Za-z0-9_./-]+$ ]]; then
            printf ' %s' "$word"
        else
            printf " '%s'" "$word"
        fi
    done
    printf '\n'
    "$lnk" "${@:2}"
}
