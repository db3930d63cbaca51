//! The parts of a step, as reports name them.

use linktax_trace::Buckets;

/// One of the disjoint parts.
pub(crate) struct Part {
    /// Key in JSON.
    pub(crate) key: &'static str,
    /// Head of its column.
    pub(crate) title: &'static str,
    /// Its nanoseconds.
    pub(crate) get: fn(&Buckets) -> u64,
    /// Shown although it is zero everywhere.
    always: bool,
    /// Cannot be told without the names of kernels.
    pub(crate) named: bool,
}

/// In the order of reports; they sum to the step.
pub(crate) const PARTS: [Part; 10] = [
    part("linear_ns", "linear", |b| b.linear_ns, true, true),
    part("attention_ns", "attention", |b| b.attention_ns, true, true),
    part("ssm_ns", "ssm", |b| b.ssm_ns, false, true),
    part("moe_ns", "moe", |b| b.moe_ns, false, true),
    part("communication_ns", "comm", |b| b.comm_ns, true, true),
    part("other_ns", "other", |b| b.other_ns, true, true),
    part("unknown_ns", "unknown", |b| b.unknown_ns, true, true),
    part("graph_ns", "opaque", |b| b.graph_ns, false, false),
    part("copies_ns", "copies", |b| b.copy_ns, true, false),
    part("idle_ns", "idle", |b| b.idle_ns, true, false),
];

const fn part(
    key: &'static str,
    title: &'static str,
    get: fn(&Buckets) -> u64,
    always: bool,
    named: bool,
) -> Part {
    Part {
        key,
        title,
        get,
        always,
        named,
    }
}

/// The parts worth a column: those of every split, and those that any step has.
pub(crate) fn shown<'a>(steps: impl Iterator<Item = &'a Buckets> + Clone) -> Vec<&'static Part> {
    PARTS
        .iter()
        .filter(|part| part.always || steps.clone().any(|b| (part.get)(b) > 0))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_sum_to_the_step() {
        let buckets = Buckets {
            linear_ns: 1,
            attention_ns: 2,
            ssm_ns: 4,
            moe_ns: 8,
            other_ns: 16,
            unknown_ns: 32,
            graph_ns: 64,
            comm_ns: 128,
            copy_ns: 256,
            idle_ns: 512,
            ..Buckets::default()
        };
        let sum: u64 = PARTS.iter().map(|part| (part.get)(&buckets)).sum();
        assert_eq!((sum, buckets.total()), (1023, 1023));
        let none = Buckets::default();
        let titles: Vec<_> = shown([&none].into_iter()).iter().map(|p| p.title).collect();
        assert_eq!(
            titles,
            [
                "linear",
                "attention",
                "comm",
                "other",
                "unknown",
                "copies",
                "idle"
            ]
        );
    }
}
