/// What a text option of this crate can be wrong about.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A stall threshold that is neither a duration nor a mode.
    #[error(
        "stall gap {text:?} is not understood: give a positive duration with its unit (us, ms or s, such as 200ms or 0.2s), auto, or off"
    )]
    StallGap {
        /// What was given.
        text: String,
    },
    /// An objective without the shape `METRIC:MS`.
    #[error(
        "objective {text:?} is not understood: give METRIC:MS with METRIC one of ttft, tpot, e2el, such as ttft:500"
    )]
    SloShape {
        /// What was given.
        text: String,
    },
    /// An objective on a metric that has none.
    #[error("objective {text:?}: unknown metric {metric:?}, valid are ttft, tpot, e2el")]
    SloMetric {
        /// What was given.
        text: String,
        /// The part before the colon.
        metric: String,
    },
    /// An objective whose limit is not a positive number.
    #[error("objective {text:?}: {limit:?} is not a positive number of milliseconds")]
    SloLimit {
        /// What was given.
        text: String,
        /// The part after the colon.
        limit: String,
    },
}
