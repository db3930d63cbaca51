//! Durations of a step's operations from the totals of the specification.

use std::collections::BTreeMap;

use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;

use super::Segment;
use crate::synth::spec::{Bucket, PhaseSpec};

/// Shares each bucket's total among its operations, to the nanosecond.
pub(crate) fn set_durations(
    segments: &mut [Segment],
    phase: &PhaseSpec,
    jitter: f64,
    rng: &mut ChaCha8Rng,
) -> Result<(), String> {
    let mut weights: BTreeMap<Bucket, Vec<u64>> = BTreeMap::new();
    for item in segments.iter().flat_map(|s| &s.items) {
        let spread = if jitter > 0.0 {
            1.0 + jitter * (2.0 * rng.random::<f64>() - 1.0)
        } else {
            1.0
        };
        let weight = (item.weight() as f64 * spread * 1e6) as u64;
        weights.entry(item.bucket()).or_default().push(weight);
    }
    let mut shares: BTreeMap<Bucket, std::vec::IntoIter<u64>> = BTreeMap::new();
    for (&bucket, &total) in &phase.time_ns {
        let weights = weights.get(&bucket).ok_or_else(|| {
            format!(
                "time_ns.{}: such a step has no such operation",
                bucket.as_str()
            )
        })?;
        let parts = split(total, weights);
        if parts.contains(&0) {
            return Err(format!(
                "time_ns.{}: {total} ns are too few for {} operations",
                bucket.as_str(),
                parts.len()
            ));
        }
        shares.insert(bucket, parts.into_iter());
    }
    for item in segments.iter_mut().flat_map(|s| &mut s.items) {
        let ns = match shares.get_mut(&item.bucket()) {
            Some(parts) => parts.next().unwrap_or(1),
            None => item.default_ns(),
        };
        item.set_dur(ns);
    }
    Ok(())
}

/// Splits `total` in proportion to `weights`; the parts sum to it exactly.
fn split(total: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|&w| u128::from(w)).sum();
    let mut seen = 0u128;
    let mut given = 0u64;
    weights
        .iter()
        .map(|&weight| {
            seen += u128::from(weight);
            // Below `total`, which is a u64.
            let upto = (u128::from(total) * seen / sum.max(1)) as u64;
            let part = upto - given;
            given = upto;
            part
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_sum_to_the_total() {
        for (total, weights) in [
            (10, vec![1, 1, 1]),
            (7, vec![5]),
            (1_000_003, vec![3, 1, 9, 2]),
        ] {
            assert_eq!(split(total, &weights).iter().sum::<u64>(), total);
        }
    }
}
