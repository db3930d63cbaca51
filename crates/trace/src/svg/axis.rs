//! The time axis: from nanoseconds to pixels, with ticks at round numbers.

use super::canvas::{Anchor, Canvas, Face};

/// Room that one tick label wants.
const TICK: f64 = 80.0;

pub(super) struct Axis {
    left: f64,
    right: f64,
    span: u64,
}

impl Axis {
    pub(super) fn new(left: f64, right: f64, span: u64) -> Self {
        Axis {
            left,
            right,
            span: span.max(1),
        }
    }

    pub(super) fn right(&self) -> f64 {
        self.right
    }

    /// Pixels of a time since the left edge.
    pub(super) fn x(&self, ns: u64) -> f64 {
        self.left + ns as f64 / self.span as f64 * (self.right - self.left)
    }

    /// The smallest round interval whose ticks have room.
    fn interval(&self) -> u64 {
        let most = ((self.right - self.left) / TICK).floor().max(1.0);
        let least = self.span as f64 / most;
        let mut decade = 1u64;
        loop {
            for step in [1, 2, 5] {
                let interval = decade.saturating_mul(step);
                if interval as f64 >= least {
                    return interval;
                }
            }
            decade = decade.saturating_mul(10);
        }
    }

    pub(super) fn ticks(&self) -> Vec<(u64, String)> {
        let interval = self.interval();
        let (unit, word) = match self.span {
            ..10_000 => (1, "ns"),
            10_000..1_000_000 => (1_000, "µs"),
            1_000_000..10_000_000_000 => (1_000_000, "ms"),
            _ => (1_000_000_000, "s"),
        };
        let label = |ns: u64| match ns {
            0 => format!("0 {word}"),
            _ => (ns as f64 / unit as f64).to_string(),
        };
        (0..=self.span / interval)
            .map(|i| (i * interval, label(i * interval)))
            .collect()
    }

    /// Labels here, and a line through the lanes below, which are `height` high.
    pub(super) fn draw(&self, canvas: &mut Canvas, height: f64) {
        for (ns, label) in self.ticks() {
            let x = self.x(ns);
            canvas.text(x, &label, Anchor::Middle, Face::SMALL);
            canvas.line(x, 5.0, height + 5.0, "#d9d9d9");
        }
        canvas.move_down(8.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(span: u64) -> Vec<String> {
        let axis = Axis::new(96.0, 1160.0, span);
        axis.ticks().into_iter().map(|t| t.1).collect()
    }

    #[test]
    fn ticks_are_round_and_have_room() {
        assert_eq!(labels(8_204_123).join(" "), "0 ms 1 2 3 4 5 6 7 8");
        assert_eq!(labels(87_000).join(" "), "0 µs 10 20 30 40 50 60 70 80");
        assert_eq!(
            labels(1_200_000).join(" "),
            "0 ms 0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9 1 1.1 1.2"
        );
        assert_eq!(labels(3), ["0 ns", "1", "2", "3"]);
        for span in [1, 7, 999, 123_456, 8_204_123, 59_000_000_000, u64::MAX] {
            let axis = Axis::new(96.0, 1160.0, span);
            let xs: Vec<f64> = axis.ticks().iter().map(|t| axis.x(t.0)).collect();
            assert!(xs.windows(2).all(|w| w[1] - w[0] >= TICK - 1e-6), "{span}");
            assert!(xs.iter().all(|&x| x <= 1160.0 + 1e-6), "{span}");
        }
    }
}
