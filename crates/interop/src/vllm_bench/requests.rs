use linktax_records::{Nanos, Outcome, Phase, RecordSource, RequestRecord};

/// What the file says of one request.
#[derive(Debug)]
pub(super) struct Row {
    index: u64,
    due: Nanos,
    sent: Option<Nanos>,
    /// Times of the reads with tokens, since the send; only of a completed request, which has at least one.
    token_reads: Vec<Nanos>,
    pub(super) input_len: Option<u64>,
    pub(super) output_len: u64,
    pub(super) text: String,
    pub(super) error: String,
}

impl Row {
    fn new(record: &RequestRecord) -> Row {
        let completed = record.outcome == Outcome::Completed && record.t_sent_ns.is_some();
        let token_reads: Vec<Nanos> = if completed {
            record.reads.token_reads().map(|(t, _)| t).collect()
        } else {
            vec![]
        };
        let ok = !token_reads.is_empty();
        Row {
            index: record.index,
            due: record.t_sched_ns,
            sent: record.t_sent_ns,
            token_reads,
            input_len: record.usage.map(|u| u.prompt_tokens).or(record.input_len),
            output_len: if ok { record.output_tokens() } else { 0 },
            text: record.text.clone().unwrap_or_default(),
            error: if ok { String::new() } else { error_of(record) },
        }
    }

    pub(super) fn ok(&self) -> bool {
        !self.token_reads.is_empty()
    }

    pub(super) fn ttft_s(&self) -> Option<f64> {
        self.token_reads.first().map(|t| t.as_secs_f64())
    }

    pub(super) fn latency_s(&self) -> Option<f64> {
        self.token_reads.last().map(|t| t.as_secs_f64())
    }

    /// `(latency - ttft) / (n - 1)`, for more than one token.
    pub(super) fn tpot_s(&self) -> Option<f64> {
        let decode = *self.token_reads.last()? - *self.token_reads.first()?;
        (self.output_len > 1).then(|| decode.as_secs_f64() / (self.output_len - 1) as f64)
    }

    pub(super) fn gaps_s(&self) -> impl Iterator<Item = f64> + '_ {
        self.token_reads
            .windows(2)
            .map(|pair| (pair[1] - pair[0]).as_secs_f64())
    }

    pub(super) fn start_s(&self) -> f64 {
        self.sent.unwrap_or_default().as_secs_f64()
    }

    pub(super) fn queue_s(&self) -> f64 {
        self.sent
            .map_or(0.0, |sent| (sent - self.due).as_secs_f64())
    }

    /// Send and last token of a completed request, on the cell's clock.
    fn active(&self) -> Option<(Nanos, Nanos)> {
        let sent = self.sent?;
        Some((sent, sent + *self.token_reads.last()?))
    }
}

fn error_of(record: &RequestRecord) -> String {
    let kind = record.outcome.as_str();
    match &record.failure {
        Some(failure) => format!("{kind}: {}", failure.message),
        None => kind.to_owned(),
    }
}

/// The measured requests of a cell, in the order of sending.
#[derive(Debug)]
pub(super) struct Requests {
    pub(super) rows: Vec<Row>,
    pub(super) cancelled: u64,
    first_sent: Option<Nanos>,
    last_token: Option<Nanos>,
}

impl Requests {
    pub(super) fn collect<S: RecordSource + ?Sized>(records: &S) -> Result<Requests, S::Error> {
        let mut all = Requests {
            rows: vec![],
            cancelled: 0,
            first_sent: None,
            last_token: None,
        };
        records.scan(&mut |record| {
            if record.phase == Phase::Measured {
                all.add(record);
            }
        })?;
        // Records come as they end, the file wants them as they were sent.
        all.rows.sort_by_key(|row| row.index);
        Ok(all)
    }

    fn add(&mut self, record: &RequestRecord) {
        // Whatever became of a request, its send and its tokens belong to the window: they took the server's time.
        if let Some(sent) = record.t_sent_ns {
            self.first_sent = Some(self.first_sent.map_or(sent, |first| first.min(sent)));
        }
        self.last_token = self.last_token.max(record.t_last_token());
        if record.outcome == Outcome::Cancelled {
            self.cancelled += 1;
        } else {
            self.rows.push(Row::new(record));
        }
    }

    pub(super) fn completed(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.ok())
    }

    /// First send to last token of the cell, in which something must have completed.
    pub(super) fn duration_s(&self) -> Option<f64> {
        self.completed().next()?;
        let window = self.last_token?.checked_sub(self.first_sent?)?;
        (window > Nanos::ZERO).then(|| window.as_secs_f64())
    }
}

/// Maxima over fixed one-second buckets from the first send on, of completed requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peaks {
    /// Chunks (here: reads with tokens), which the file calls tokens.
    pub(super) chunks: u64,
    /// Requests under way at any time within the bucket.
    pub(super) requests: u64,
}

const SECOND: u64 = 1_000_000_000;

impl Peaks {
    pub(super) fn of(requests: &Requests) -> Option<Peaks> {
        let origin = requests
            .completed()
            .filter_map(Row::active)
            .map(|(sent, _)| sent)
            .min()?;
        let end = requests
            .completed()
            .filter_map(Row::active)
            .map(|(_, last)| last)
            .max()?;
        let second_of = |t: Nanos| ((t - origin).as_nanos() / SECOND) as usize;
        let buckets = (end - origin).as_nanos().div_ceil(SECOND) as usize + 1;
        let mut chunks = vec![0_u64; buckets];
        let mut under_way = vec![0_u64; buckets];
        for row in requests.completed() {
            let Some((sent, last)) = row.active() else {
                continue;
            };
            for &read in &row.token_reads {
                chunks[second_of(sent + read)] += 1;
            }
            let until = (last - origin).as_nanos().div_ceil(SECOND) as usize;
            for bucket in &mut under_way[second_of(sent)..until.max(second_of(sent))] {
                *bucket += 1;
            }
        }
        Some(Peaks {
            chunks: chunks.into_iter().max().unwrap_or(0),
            requests: under_way.into_iter().max().unwrap_or(0),
        })
    }
}
