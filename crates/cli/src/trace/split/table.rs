//! The split for people.

use super::super::blame::caused_ns;
use super::super::chosen::{Origin, Row};
use super::super::heading;
use super::super::kernels::kernel_table;
use super::super::parts::{Part, shown};
use super::super::stats::{Stats, ms, percent};
use super::super::unsplittable;
use super::{Report, by_kind};
use crate::table::layout::Grid;

/// Warnings on top, then step times, where they went, communication, idle time and kernels.
pub(super) fn of(report: &Report, top: usize, width: Option<usize>) -> String {
    let session = &report.session;
    let mut text = heading::of_capture(&session.capture, "split");
    text.push_str(&heading::of_steps(session));
    text.push_str(&heading::of_unknown(
        &session.capture,
        &report.unknown,
        report.chosen.hides(),
    ));
    if let Some(why) = report.chosen.refusal() {
        text.push_str(&format!("! {why}\n"));
    }
    text.push_str(&heading::warnings(&report.notes));
    let mut out = heading::fit(&text, width);
    let mut tables = Vec::new();
    let opaque = unsplittable::table(&report.chosen.lanes);
    tables.extend(opaque.map(|grid| {
        (
            "Step time, ms; what is inside the graphs cannot be told".to_owned(),
            grid,
        )
    }));
    let split = Splits::of(report);
    if !split.0.is_empty() {
        tables.extend(split.tables());
        let where_from = match report.chosen.hides() {
            true => " outside the graphs",
            false => "",
        };
        let title = format!(
            "Kernels with most time{where_from}, all {} steps",
            split.0.iter().map(|s| s.rows.len()).sum::<usize>()
        );
        if report.chosen.refusal().is_none() {
            tables.push((
                title,
                kernel_table(&session.capture, &report.totals, top, width),
            ));
        }
    }
    for (title, grid) in tables {
        out.push_str(&format!("\n{title}\n{}\n", grid.render(width)));
    }
    if !split.0.is_empty() {
        out.push_str(&heading::fit(LEGEND, width));
    }
    out
}

const LEGEND: &str = "
A step lasts from its first operation on the GPU to the next step's. Its parts are disjoint and sum to it: where kernels \
overlap, compute counts before communication and communication before copies, so comm is exposed communication. \
caused: what the other GPUs waited because this one came last. A number marked ^ is the maximum, because too few steps make a p95.
";

/// The steps of one kind on one GPU.
struct Split<'a> {
    gpu: String,
    kind: &'static str,
    rows: Vec<&'a Row>,
    /// Waiting that it caused in the others, nanoseconds.
    caused: Option<u64>,
}

struct Splits<'a>(Vec<Split<'a>>);

impl<'a> Splits<'a> {
    /// Those that can be split.
    fn of(report: &'a Report) -> Self {
        let mut out = Vec::new();
        for lane in report.chosen.lanes.iter().filter(|l| l.refusal.is_none()) {
            for (kind, rows) in by_kind(lane) {
                out.push(Split {
                    gpu: lane.lane.to_string(),
                    kind: kind.as_str(),
                    rows,
                    caused: caused_ns(&report.session, &report.chosen, lane.lane, kind),
                });
            }
        }
        Splits(out)
    }

    fn tables(&self) -> Vec<(String, Grid)> {
        let buckets = || {
            self.0
                .iter()
                .flat_map(|s| s.rows.iter().map(|r| &r.buckets))
        };
        let parts = shown(buckets());
        let any = |origin| {
            self.0
                .iter()
                .flat_map(|s| &s.rows)
                .any(|r| r.origin == origin)
        };
        let estimated = match any(Origin::Estimated) {
            true => " (ESTIMATED: shares of another capture)",
            false => "",
        };
        let mut out = vec![
            ("Step time, ms".to_owned(), self.times()),
            (
                format!("Where it went, mean ms a step{estimated}"),
                self.parts(&parts, |stats, _| ms(stats.mean, 3)),
            ),
            (
                format!("The same in shares of the step{estimated}"),
                self.parts(&parts, |stats, step| {
                    percent(stats.sum as f64, step.sum as f64)
                }),
            ),
            (
                format!("Median / p95 ms a step{estimated}"),
                self.parts(&parts, |stats, _| {
                    format!("{} / {}", ms(stats.median, 3), stats.p95_ms(3))
                }),
            ),
        ];
        if buckets().any(|b| b.comm_ns > 0) {
            out.push(("Communication, mean ms a step".to_owned(), self.comm()));
        }
        let idle = self.idle().without_empty_columns();
        // Where only the sum is known, it stands above.
        if idle.headers.len() > 4 {
            out.push(("Idle time, mean ms a step".to_owned(), idle));
        }
        out
    }

    fn grid(&self, headers: &[&'static str], row: impl Fn(&Split<'_>) -> Vec<String>) -> Grid {
        let mut all = vec!["GPU", "step", "n"];
        all.extend(headers);
        let rows = self.0.iter().map(|split| {
            let mut cells = vec![
                split.gpu.clone(),
                split.kind.to_owned(),
                split.rows.len().to_string(),
            ];
            cells.extend(row(split));
            cells
        });
        Grid {
            headers: all,
            rows: rows.collect(),
        }
    }

    fn times(&self) -> Grid {
        let headers = [
            "tokens", "mean", "median", "p95", "busy", "launches", "overlap",
        ];
        let grid = self.grid(&headers, |split| {
            let step = split.stats(|row| row.step.dur());
            let busy = split.stats(|row| row.step.dur() - row.buckets.idle_ns);
            vec![
                split.median(|row| row.step.batch?.tokens()),
                ms(step.mean, 3),
                ms(step.median, 3),
                step.p95_ms(3),
                percent(busy.sum as f64, step.sum as f64),
                split.median(|row| row.launches),
                split.overlap(),
            ]
        });
        grid.without_empty_columns()
    }

    fn parts(&self, parts: &[&'static Part], show: impl Fn(Stats, Stats) -> String) -> Grid {
        let headers: Vec<&str> = parts.iter().map(|part| part.title).collect();
        self.grid(&headers, |split| {
            let step = split.stats(|row| row.step.dur());
            let one = |part: &&Part| show(split.stats(|row| (part.get)(&row.buckets)), step);
            parts.iter().map(one).collect()
        })
    }

    fn comm(&self) -> Grid {
        let mut headers = vec![
            "total",
            "exposed",
            "overlapped",
            "service",
            "wait",
            "wait share",
        ];
        let blamed = self.0.iter().any(|split| split.caused.is_some());
        if blamed {
            headers.push("caused");
        }
        self.grid(&headers, |split| {
            let mean = |part: &dyn Fn(&Row) -> Option<u64>| split.mean(part);
            let total = split.sum(&|row| Some(row.comm?.total_ns));
            let wait = split.sum(&|row| match row.comm?.total_ns {
                0 => Some(0),
                _ => row.comm?.wait_ns,
            });
            let share = match (wait, total) {
                (Some(wait), Some(total)) => percent(wait as f64, total as f64),
                _ => "n/a".to_owned(),
            };
            let mut cells = vec![
                mean(&|row| Some(row.comm?.total_ns)),
                mean(&|row| Some(row.comm?.exposed_ns)),
                mean(&|row| Some(row.comm?.overlapped_ns)),
                mean(&|row| row.comm?.service_ns),
                mean(&|row| row.comm?.wait_ns),
                share,
            ];
            if blamed {
                let caused = split.caused.map(|ns| ns as f64 / split.rows.len() as f64);
                cells.push(caused.map_or_else(|| "n/a".to_owned(), |ns| ms(ns, 3)));
            }
            cells
        })
    }

    fn idle(&self) -> Grid {
        let headers = [
            "idle",
            "late launch",
            "between steps",
            "inside graph",
            "other",
        ];
        self.grid(&headers, |split| {
            vec![
                split.mean(&|row| Some(row.buckets.idle_ns)),
                split.mean(&|row| Some(row.idle?.launch_bound_ns)),
                split.mean(&|row| Some(row.idle?.between_steps_ns)),
                split.mean(&|row| Some(row.idle?.in_graph_ns)),
                split.mean(&|row| Some(row.idle?.other_ns)),
            ]
        })
    }
}

impl Split<'_> {
    fn stats(&self, part: impl Fn(&Row) -> u64) -> Stats {
        Stats::of(self.rows.iter().map(|row| part(row)))
    }

    fn sum(&self, part: &dyn Fn(&Row) -> Option<u64>) -> Option<u64> {
        self.rows.iter().map(|row| part(row)).sum()
    }

    /// `n/a` where one step does not know.
    fn mean(&self, part: &dyn Fn(&Row) -> Option<u64>) -> String {
        match self.sum(part) {
            Some(sum) => ms(sum as f64 / self.rows.len() as f64, 3),
            None => "n/a".to_owned(),
        }
    }

    /// Of the steps that know.
    fn median(&self, part: impl Fn(&Row) -> Option<u64>) -> String {
        let known: Vec<u64> = self.rows.iter().filter_map(|row| part(row)).collect();
        match known.is_empty() {
            true => "n/a".to_owned(),
            false => format!("{:.0}", Stats::of(known).median),
        }
    }

    fn overlap(&self) -> String {
        let known: Vec<f64> = self.rows.iter().filter_map(|r| r.overlap_factor).collect();
        match known.is_empty() {
            true => "n/a".to_owned(),
            false => format!("{:.3}", known.iter().sum::<f64>() / known.len() as f64),
        }
    }
}
