//! What goes to the terminal: results to stdout, everything else to stderr.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

/// Text that a terminal only shows: what servers say may hold control sequences, which it would obey.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let obeyed = |c: char| c.is_control() && c != '\n';
    match text.contains(obeyed) {
        true => Cow::Owned(text.replace(obeyed, "\u{fffd}")),
        false => Cow::Borrowed(text),
    }
}

/// Writes results to stdout.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let text = printable(text);
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// Writes a remark to stderr.
pub(crate) fn note(text: &str) {
    // If stderr is gone there is nobody to tell.
    let _ = writeln!(io::stderr().lock(), "{}", printable(text));
}

/// Columns of the terminal that stdout is; `None` for a file or a pipe, which have no edge.
pub(crate) fn width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Whether stderr is a terminal, so that a progress line makes sense.
pub(crate) fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_sequences_are_shown_and_not_obeyed() {
        assert_eq!(printable("a\nb ü"), "a\nb ü");
        assert_eq!(
            printable("\u{1b}[2Jx\r\u{9b}0m\t"),
            "\u{fffd}[2Jx\u{fffd}\u{fffd}0m\u{fffd}"
        );
    }
}
