//! Runs the cells that are left, writes down what comes of them, and keeps the manifest true after each.

use std::ops::ControlFlow;

use anyhow::Context;
use linktax_loadgen::{CellRun, Event, Run, Stop, unix_now_ns};
use linktax_records::{CellStatus, Note, Phase, RunStatus, Verdict, VerdictStatus};
use linktax_store::{RunReader, RunWriter};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::args::BenchArgs;
use super::plan::BenchPlan;
use super::progress::Progress;
use super::redact::Redactor;
use super::vllm_json::VllmJson;

/// A bench run in progress.
pub(crate) struct Bench<'a> {
    pub(crate) args: &'a BenchArgs,
    pub(crate) plan: &'a BenchPlan,
    pub(crate) run: &'a Run,
    pub(crate) writer: &'a mut RunWriter,
    pub(crate) stop: &'a watch::Sender<Stop>,
    pub(crate) redactor: &'a Redactor,
    pub(crate) vllm_json: Option<VllmJson>,
}

impl Bench<'_> {
    /// Runs every cell that is not complete; stops early when told to.
    pub(crate) fn run_cells(&mut self) -> anyhow::Result<()> {
        let cells = self.writer.manifest().cells.len();
        for cell in 0..cells {
            if self.writer.manifest().cells[cell].status == CellStatus::Complete {
                continue;
            }
            if *self.stop.borrow() != Stop::Run {
                break;
            }
            self.run_cell(cell)?;
        }
        let manifest = self.writer.manifest_mut();
        let complete = manifest
            .cells
            .iter()
            .all(|c| c.status == CellStatus::Complete);
        if complete {
            manifest.status = RunStatus::Complete;
        }
        manifest.finished_unix_ns = Some(unix_now_ns());
        self.writer.save()?;
        Ok(())
    }

    fn run_cell(&mut self, cell: usize) -> anyhow::Result<()> {
        let entry = &mut self.writer.manifest_mut().cells[cell];
        entry.status = CellStatus::Running;
        let (spec, attempt) = (entry.spec.clone(), entry.attempt);
        self.writer.save()?;
        let progress = Progress::start(&spec, self.writer.manifest().cells.len(), self.args.quiet);
        let mut failed = None;
        let (run, stop, redactor) = (self.run, self.stop, self.redactor);
        let writer = &mut *self.writer;
        let outcome = run.run_cell(&spec, attempt, stop, &mut |event| {
            progress.on(&event);
            if let Event::Record(record) = event
                && let Err(e) = writer.append(redactor.record(record).as_ref().unwrap_or(record))
            {
                failed = Some(e);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        progress.finish();
        if let Some(e) = failed {
            return Err(e).context("the run was stopped because its records could not be written");
        }
        self.conclude(cell, outcome?)
    }

    /// Turns the cell's records into numbers and a verdict.
    fn conclude(&mut self, cell: usize, outcome: CellRun) -> anyhow::Result<()> {
        self.keep_server(cell, &outcome.server_raw)?;
        let reader = RunReader::open(self.writer.dir())?;
        let records = reader.cell_records(cell as u32);
        let options = self.plan.options(self.writer.manifest().gpus.count)?;
        let spec = self.writer.manifest().cells[cell].spec.clone();
        let summary = linktax_metrics::summarize(&records, &spec, &options)?;
        let mut verdict = linktax_metrics::judge(
            &spec,
            &summary,
            Some(&outcome.server),
            Some(&outcome.client),
            &self.plan.limits(),
        );
        super::failure::explain(&mut verdict, &records)?;
        add_notes(&mut verdict, outcome.notes, outcome.complete);
        let entry = &mut self.writer.manifest_mut().cells[cell];
        entry.status = match outcome.complete {
            true => CellStatus::Complete,
            false => CellStatus::Incomplete,
        };
        entry.started_unix_ns = Some(outcome.started_unix_ns);
        entry.results = Some(summary.to_json());
        entry.server = Some(outcome.server);
        entry.client = Some(outcome.client);
        entry.verdict = Some(verdict);
        self.writer.save()?;
        if let Some(out) = &mut self.vllm_json {
            out.append(
                self.writer.manifest(),
                cell,
                &records,
                self.args.save_detailed,
            )?;
        }
        Ok(())
    }

    /// Adds the cell's raw counters to `server.json`.
    fn keep_server(&self, cell: usize, raw: &Value) -> anyhow::Result<()> {
        let mut all = self
            .writer
            .server()?
            .unwrap_or_else(|| json!({"servers": self.run.servers(), "cells": {}}));
        all["cells"][cell.to_string()] = raw.clone();
        self.writer.write_server(&all)?;
        Ok(())
    }
}

/// Remarks of the run itself: those that spoil the cell become reasons.
fn add_notes(verdict: &mut Verdict, notes: Vec<Note>, complete: bool) {
    for note in notes {
        if super::is_run_time_reason(&note.code) {
            verdict.status = verdict.status.max(VerdictStatus::Flagged);
            verdict.reasons.push(note);
        } else {
            verdict.notes.push(note);
        }
    }
    if !complete && verdict.status == VerdictStatus::Valid {
        verdict.status = VerdictStatus::Flagged;
    }
}

/// Whether a phase counts, for the progress line.
pub(crate) fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Prime => "priming",
        Phase::Warmup => "warm-up",
        Phase::Measured => "measuring",
    }
}
