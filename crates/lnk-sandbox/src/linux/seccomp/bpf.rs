//! Writes classic BPF programs with labels in place of counted jumps.

use lnk_sys::seccomp::Instruction;

/// A place in the program that jumps name. Made by [`Program::label`], put
/// somewhere by [`Program::bind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Label(usize);

/// Which bits a jump compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compare {
    /// The loaded word is this number.
    Equal(u32),
    /// The loaded word, unsigned, is above this number.
    Above(u32),
    /// The loaded word has at least one of these bits.
    AnyBit(u32),
}

enum Statement {
    Load { offset: u32 },
    And { mask: u32 },
    Branch { compare: Compare, yes: Label, no: Label },
    Return { action: u32 },
    Bind(Label),
}

/// A program being written, from its first statement to its last.
#[derive(Default)]
pub(super) struct Program {
    statements: Vec<Statement>,
    labels: usize,
}

impl Program {
    /// A new label, to be bound once, after every jump to it: BPF only jumps
    /// forward.
    pub(super) fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }

    /// Puts `label` in front of the statement that comes next.
    pub(super) fn bind(&mut self, label: Label) {
        self.statements.push(Statement::Bind(label));
    }

    /// Loads the 32-bit word at `offset` of `struct seccomp_data`.
    pub(super) fn load(&mut self, offset: u32) {
        self.statements.push(Statement::Load { offset });
    }

    /// Keeps only the bits of `mask` in the loaded word.
    pub(super) fn and(&mut self, mask: u32) {
        self.statements.push(Statement::And { mask });
    }

    /// Goes on at `yes` or at `no`.
    pub(super) fn branch(&mut self, compare: Compare, yes: Label, no: Label) {
        self.statements.push(Statement::Branch { compare, yes, no });
    }

    /// Ends with `action`, a `SECCOMP_RET_*`.
    pub(super) fn ret(&mut self, action: u32) {
        self.statements.push(Statement::Return { action });
    }

    /// The program's instructions.
    ///
    /// They are laid out from the last to the first: as jumps go forward, every
    /// distance is known by then.
    pub(super) fn assemble(&self) -> Vec<Instruction> {
        let mut layout = Layout { reversed: Vec::new(), places: vec![None; self.labels] };
        for statement in self.statements.iter().rev() {
            match *statement {
                Statement::Bind(label) => layout.bind(label),
                Statement::Load { offset } => {
                    layout.plain(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset);
                }
                Statement::And { mask } => {
                    layout.plain(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, mask);
                }
                Statement::Return { action } => layout.plain(libc::BPF_RET | libc::BPF_K, action),
                Statement::Branch { compare, yes, no } => layout.branch(compare, yes, no),
            }
        }
        layout.reversed.reverse();
        layout.reversed
    }
}

/// The end of a program, written backwards.
struct Layout {
    reversed: Vec<Instruction>,
    /// For each label how many instructions are behind it.
    places: Vec<Option<usize>>,
}

impl Layout {
    fn bind(&mut self, label: Label) {
        self.places[label.0] = Some(self.reversed.len());
    }

    fn plain(&mut self, code: u32, k: u32) {
        self.push(code, 0, 0, k);
    }

    fn branch(&mut self, compare: Compare, yes: Label, no: Label) {
        let (test, k) = match compare {
            Compare::Equal(number) => (libc::BPF_JEQ, number),
            Compare::Above(number) => (libc::BPF_JGT, number),
            Compare::AnyBit(bits) => (libc::BPF_JSET, bits),
        };
        let yes = self.within_reach(yes);
        let no = self.within_reach(no);
        let skip = |place| {
            u8::try_from(self.reversed.len() - place).expect("within_reach leaves at most 255")
        };
        let (jt, jf) = (skip(yes), skip(no));
        self.push(libc::BPF_JMP | test | libc::BPF_K, jt, jf, k);
    }

    /// A place that leads to `label` and that the next instruction's 8-bit
    /// distance can name, also with one more instruction put in between.
    fn within_reach(&mut self, label: Label) -> usize {
        let place = self.places[label.0].expect("a label is bound behind the jumps to it");
        let distance = self.reversed.len() - place;
        if distance < usize::from(u8::MAX) {
            return place;
        }
        let distance = u32::try_from(distance).expect("a program has at most 4,096 instructions");
        self.plain(libc::BPF_JMP | libc::BPF_JA, distance);
        self.reversed.len()
    }

    fn push(&mut self, code: u32, jt: u8, jf: u8, k: u32) {
        let code = u16::try_from(code).expect("BPF operations have 16 bits");
        self.reversed.push(Instruction { code, jt, jf, k });
    }
}
