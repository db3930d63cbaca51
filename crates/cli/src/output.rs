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

/// Whether stderr is a terminal, so that a progress line makes sense.
pub(crate) fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}
