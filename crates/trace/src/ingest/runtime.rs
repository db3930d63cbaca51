//! The small runtime that sqlx wants, kept out of the crate's interface.

use crate::TraceError;

/// Runs `work` to its end on a runtime of its own, on a thread of its own: the caller may be inside another runtime.
pub(crate) fn on_own_runtime<T: Send>(
    work: impl AsyncFnOnce() -> Result<T, TraceError> + Send,
) -> Result<T, TraceError> {
    let failed = |what: String| TraceError::Internal { what };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("trace-reader".to_owned())
            .spawn_scoped(scope, || {
                tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .map_err(|error| failed(format!("no runtime to read with: {error}")))?
                    .block_on(work())
            })
            .map_err(|error| failed(format!("no thread to read with: {error}")))?;
        thread
            .join()
            .unwrap_or_else(|_| Err(failed("the reading thread panicked".to_owned())))
    })
}
