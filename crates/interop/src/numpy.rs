/// Statistics as numpy's defaults compute them, for formats whose numbers numpy made.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    sorted: Vec<f64>,
    mean: f64,
    std: f64,
}

impl Sample {
    /// `None` of no values.
    pub(crate) fn new(mut values: Vec<f64>) -> Option<Sample> {
        if values.is_empty() {
            return None;
        }
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
        values.sort_by(f64::total_cmp);
        Some(Sample {
            sorted: values,
            mean,
            std: (squares / n).sqrt(),
        })
    }

    /// `np.mean`.
    pub(crate) fn mean(&self) -> f64 {
        self.mean
    }

    /// `np.std`: the population's (`ddof=0`).
    pub(crate) fn std(&self) -> f64 {
        self.std
    }

    /// `np.percentile` with the default method: linear interpolation between the two nearest ranks.
    pub(crate) fn percentile(&self, percent: f64) -> f64 {
        let last = self.sorted.len() - 1;
        let rank = (percent / 100.0).clamp(0.0, 1.0) * last as f64;
        let below = rank.floor() as usize;
        let above = (below + 1).min(last);
        let (a, b) = (self.sorted[below], self.sorted[above]);
        a + (b - a) * (rank - below as f64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hand_computed() {
        let s = Sample::new(vec![4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(s.mean(), 2.5);
        assert_eq!(s.std(), 1.25_f64.sqrt());
        assert_eq!(s.percentile(0.0), 1.0);
        assert_eq!(s.percentile(50.0), 2.5);
        assert_eq!(s.percentile(90.0), 3.7);
        assert_eq!(s.percentile(100.0), 4.0);
        let one = Sample::new(vec![7.0]).unwrap();
        assert_eq!((one.std(), one.percentile(99.0)), (0.0, 7.0));
        assert!(Sample::new(vec![]).is_none());
    }

    proptest! {
        #[test]
        fn order_does_not_matter_and_percentiles_rise(
            mut values in prop::collection::vec(0.0_f64..1e3, 1..50),
            p in 0.0_f64..=100.0,
            q in 0.0_f64..=100.0,
        ) {
            let a = Sample::new(values.clone()).unwrap();
            values.reverse();
            let b = Sample::new(values).unwrap();
            prop_assert_eq!(a.percentile(p), b.percentile(p));
            let (low, high) = (p.min(q), p.max(q));
            prop_assert!(a.percentile(low) <= a.percentile(high) * (1.0 + 1e-12));
            prop_assert!(a.percentile(0.0) <= a.mean() * (1.0 + 1e-12));
        }
    }
}
