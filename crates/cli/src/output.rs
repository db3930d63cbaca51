//! What goes to the terminal: results to stdout, everything else to stderr.

use std::io::{self, IsTerminal, Write};

/// Writes results to stdout.
pub(crate) fn print(text: &str) -> io::Result<()> {
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
    let _ = writeln!(io::stderr().lock(), "{text}");
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
