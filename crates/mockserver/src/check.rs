//! Reading a configuration, and refusing one that makes no sense.

use std::path::Path;

use crate::config::{MockConfig, Mode};
use crate::error::MockError;
use crate::fault::{Fault, FaultKind};

impl MockConfig {
    /// Reads TOML; `path` is only named in errors, with the line.
    pub fn from_toml(text: &str, path: &Path) -> Result<Self, MockError> {
        let in_file = |line, reason| MockError::ConfigFile {
            path: path.to_owned(),
            line,
            reason,
        };
        let config: MockConfig = toml::from_str(text).map_err(|e| {
            let at = e.span().map_or(0, |s| s.start);
            let line = 1 + text.bytes().take(at).filter(|b| *b == b'\n').count();
            in_file(line, e.message().trim().replace('\n', ", "))
        })?;
        config
            .check()
            .map_err(|(key, reason)| in_file(line_of(text, key), format!("`{key}` {reason}")))?;
        Ok(config)
    }

    /// Says which value makes no sense, if one does.
    pub fn validate(&self) -> Result<(), MockError> {
        self.check().map_err(|(key, reason)| MockError::Config {
            key: key.to_owned(),
            reason,
        })
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        // A day: beyond it, absolute deadlines in ns are surely a mistake.
        let times = [
            ("ttft_ms", self.ttft_ms),
            ("step_ms", self.step_ms),
            ("keepalive_ms", self.keepalive_ms),
            ("keep_alive_timeout_ms", self.keep_alive_timeout_ms),
            ("prefill_us_per_token", self.prefill_us_per_token),
            ("stall", self.stall.as_ref().map_or(0.0, |s| s.ms)),
        ];
        for (key, value) in times {
            if !(0.0..=86_400_000.0).contains(&value) {
                return Err((key, format!("is {value}; expected 0 to 86400000")));
            }
        }
        let at_least_one = [
            ("max_num_seqs", self.max_num_seqs as u64),
            ("first_chunk_tokens", self.first_chunk_tokens),
            ("stream_interval", self.stream_interval),
            ("block_size", self.block_size as u64),
            ("max_model_len", self.max_model_len),
            ("eos_after", self.eos_after.unwrap_or(1)),
            (
                "stall",
                self.stall.as_ref().map_or(1, |s| s.every.min(s.at_token)),
            ),
            (
                "tokens_per_chunk",
                self.tokens_per_chunk.iter().copied().min().unwrap_or(0),
            ),
        ];
        for (key, value) in at_least_one {
            if value == 0 {
                return Err((key, "has a zero or is empty; expected 1 or more".to_owned()));
            }
        }
        if self.mode == Mode::Engine && self.step_ms == 0.0 {
            return Err((
                "step_ms",
                "is 0; the engine needs a step longer than that".to_owned(),
            ));
        }
        if !(0.001..=1000.0).contains(&self.prompt_tokens_factor) {
            let reason = format!("is {}; expected 0.001 to 1000", self.prompt_tokens_factor);
            return Err(("prompt_tokens_factor", reason));
        }
        if self.model.is_empty() {
            return Err(("model", "is empty; expected a name".to_owned()));
        }
        self.fault.iter().try_for_each(check_fault)
    }
}

fn check_fault(fault: &Fault) -> Result<(), (&'static str, String)> {
    if fault.every.is_none() && fault.nth.is_empty() {
        return Err((
            "fault",
            "selects nothing; give `every = N` or `nth = [..]`".to_owned(),
        ));
    }
    if fault.every == Some(0) || fault.nth.contains(&0) {
        return Err((
            "fault",
            "selects request 0; requests count from 1".to_owned(),
        ));
    }
    if fault.kind == FaultKind::HttpError && !(400..=599).contains(&fault.status) {
        let reason = format!("has status {}; expected 400 to 599", fault.status);
        return Err(("fault", reason));
    }
    Ok(())
}

/// The line that sets `key`, else the first one.
fn line_of(text: &str, key: &str) -> usize {
    let sets = |line: &str| {
        let line = line.trim_start().trim_start_matches('[').trim_start();
        line.strip_prefix(key)
            .is_some_and(|rest| rest.trim_start().starts_with(['=', ']', '.']))
    };
    text.lines().position(sets).map_or(1, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Stall;

    fn parse(text: &str) -> Result<MockConfig, String> {
        MockConfig::from_toml(text, Path::new("mock.toml")).map_err(|e| e.to_string())
    }

    #[test]
    fn empty_file_is_the_default_and_the_default_survives_a_round_trip() {
        assert_eq!(parse("").unwrap(), MockConfig::default());
        let written = toml::to_string(&MockConfig::default()).unwrap();
        assert_eq!(parse(&written).unwrap(), MockConfig::default());
    }

    #[test]
    fn tokens_per_chunk_is_a_number_or_a_cycle() {
        assert_eq!(parse("tokens_per_chunk = 4").unwrap().tokens_per_chunk, [4]);
        assert_eq!(
            parse("tokens_per_chunk = [3, 4, 4, 2]")
                .unwrap()
                .tokens_per_chunk,
            [3, 4, 4, 2]
        );
        let e = parse("model = \"m\"\ntokens_per_chunk = \"x\"").unwrap_err();
        assert_eq!(
            e,
            "mock.toml:2: expected a number of tokens or a list of them"
        );
    }

    #[test]
    fn mistakes_name_the_line_and_what_would_be_right() {
        let e = parse("model = \"m\"\n\nttft = 3\n").unwrap_err();
        assert!(
            e.starts_with("mock.toml:3: unknown field `ttft`, expected one of"),
            "{e}"
        );
        let e = parse("step_ms = 1\nmode = \"engin\"\n").unwrap_err();
        assert!(
            e.starts_with("mock.toml:2: unknown variant `engin`, expected `per_request` or"),
            "{e}"
        );
        let e = parse("model = \"m\"\nstep_ms = -1\n").unwrap_err();
        assert_eq!(e, "mock.toml:2: `step_ms` is -1; expected 0 to 86400000");
        let e = parse("model = \"m\"\n[[fault]]\nkind = \"reset\"\n").unwrap_err();
        assert_eq!(
            e,
            "mock.toml:2: `fault` selects nothing; give `every = N` or `nth = [..]`"
        );
        let e = parse("model = \"m\"\nmodel = \n").unwrap_err();
        assert!(e.starts_with("mock.toml:2: "), "{e}");
    }

    #[test]
    fn senseless_values_are_refused() {
        let base = MockConfig::default;
        let bad = [
            MockConfig {
                tokens_per_chunk: vec![],
                ..base()
            },
            MockConfig {
                tokens_per_chunk: vec![3, 0],
                ..base()
            },
            MockConfig {
                ttft_ms: f64::NAN,
                ..base()
            },
            MockConfig {
                max_num_seqs: 0,
                ..base()
            },
            MockConfig {
                mode: Mode::Engine,
                step_ms: 0.0,
                ..base()
            },
            MockConfig {
                prompt_tokens_factor: 0.0,
                ..base()
            },
            MockConfig {
                stall: Some(Stall {
                    every: 1,
                    at_token: 0,
                    ms: 1.0,
                    skip_first: 0,
                }),
                ..base()
            },
            MockConfig {
                fault: vec![Fault {
                    status: 200,
                    ..Fault::always(FaultKind::HttpError)
                }],
                ..base()
            },
        ];
        for config in bad {
            assert!(config.validate().is_err(), "{config:?}");
        }
    }
}
