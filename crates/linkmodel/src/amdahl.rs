//! Amdahl's law on the communication of a step: what is left when only that part gets faster.

/// Step time in the units of `step` when its `communication` share runs `factor` times faster and nothing else changes.
///
/// An infinite `factor` gives the bound. This is an upper bound of the gain: time a rank spends waiting for another
/// inside its communication does not shrink with a faster link, so use it on exposed time and beside a replay.
///
/// Source: Amdahl 1967, as both reference studies apply it: 20 ms with 4 ms of communication at 2x is 18 ms.
///
/// ```
/// assert_eq!(linktax_linkmodel::amdahl(20.0, 4.0, 2.0), 18.0);
/// assert_eq!(linktax_linkmodel::amdahl(20.0, 4.0, f64::INFINITY), 16.0);
/// ```
pub fn amdahl(step: f64, communication: f64, factor: f64) -> f64 {
    step - communication + communication / factor
}

/// How many times faster a step gets: `step / amdahl(step, …)`. `None` when nothing would be left of it.
pub fn amdahl_speedup(step: f64, communication: f64, factor: f64) -> Option<f64> {
    let left = amdahl(step, communication, factor);
    (left > 0.0).then(|| step / left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_studies_worked_numbers() {
        // 8xH20: 20 ms a step, 4 ms of it communication, a link twice as fast.
        assert_eq!(amdahl(20.0, 4.0, 2.0), 18.0);
        let gain = amdahl_speedup(20.0, 4.0, 2.0).unwrap() - 1.0;
        assert!((gain * 100.0 - 11.1).abs() < 0.05, "{gain}");
        // NVLink against PCIe: NCCL is 15 % of a step.
        let bound = amdahl_speedup(1.0, 0.15, f64::INFINITY).unwrap();
        assert!((bound - 1.176).abs() < 0.0005, "{bound}");
        let twice = amdahl_speedup(1.0, 0.15, 2.0).unwrap();
        assert!((twice - 1.081).abs() < 0.0005, "{twice}");
    }

    #[test]
    fn a_step_of_nothing_but_communication_has_no_bound() {
        assert_eq!(amdahl_speedup(3.0, 3.0, f64::INFINITY), None);
        assert_eq!(amdahl_speedup(3.0, 3.0, 3.0), Some(3.0));
    }

    proptest::proptest! {
        #[test]
        fn faster_links_never_hurt_and_never_pass_the_bound(
            step in 1.0..1e9f64, share in 0.0..1.0f64, factor in 1.0..1e6f64,
        ) {
            let communication = step * share;
            let left = amdahl(step, communication, factor);
            proptest::prop_assert!(left <= step * (1.0 + 1e-12));
            proptest::prop_assert!(left >= (step - communication) * (1.0 - 1e-12));
        }
    }
}
