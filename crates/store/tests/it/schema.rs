use jsonschema::Validator;
use linktax_records::{
    CacheMode, CellStatus, ClientStats, EventClass, HistogramDelta, Load, Note, Phase, RunManifest,
    RunStatus, ServerDelta, SpecDecode, TokenSource, Verdict, VerdictStatus,
};
use linktax_store::{REQUEST_SCHEMA, RUN_SCHEMA};
use serde::Serialize;
use serde_json::{Value, json};

use crate::samples::{OUTCOMES, bare_record, full_record, manifest};

fn validator(schema: &str) -> Validator {
    let schema: Value = serde_json::from_str(schema).unwrap();
    jsonschema::meta::validate(&schema).unwrap();
    jsonschema::draft202012::new(&schema).unwrap()
}

#[track_caller]
fn check(validator: &Validator, value: &impl Serialize) {
    let value = serde_json::to_value(value).unwrap();
    let errors: Vec<String> = validator
        .iter_errors(&value)
        .map(|e| format!("{}: {e}", e.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?} in {value:#}");
}

/// Every object in `value`, by JSON pointer.
fn objects(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            found.push(at.to_owned());
            for (key, child) in map {
                objects(child, &format!("{at}/{key}"), found);
            }
        }
        Value::Array(items) => {
            for (i, child) in items.iter().enumerate() {
                objects(child, &format!("{at}/{i}"), found);
            }
        }
        _ => {}
    }
}

/// Each object of `value` that is not under one of `open` must refuse an unknown field.
fn check_closed(validator: &Validator, value: &Value, open: &[&str]) {
    let mut found = vec![];
    objects(value, "", &mut found);
    for at in found {
        let mut changed = value.clone();
        changed
            .pointer_mut(&at)
            .unwrap()
            .as_object_mut()
            .unwrap()
            .insert("surprise".into(), json!(1));
        let expected = open.iter().any(|o| at.starts_with(o));
        assert_eq!(validator.is_valid(&changed), expected, "at `{at}`");
    }
}

#[test]
fn records_fit_the_schema() {
    let v = validator(REQUEST_SCHEMA);
    check(&v, &bare_record());
    check(&v, &full_record());
    for outcome in OUTCOMES {
        let mut r = full_record();
        r.outcome = outcome;
        check(&v, &r);
        assert_eq!(serde_json::to_value(outcome).unwrap(), outcome.as_str());
    }
    for phase in [Phase::Prime, Phase::Warmup, Phase::Measured] {
        let mut r = bare_record();
        r.phase = phase;
        assert_eq!(serde_json::to_value(phase).unwrap(), phase.as_str());
        check(&v, &r);
    }
    for source in [
        TokenSource::ContinuousUsage,
        TokenSource::TokenIds,
        TokenSource::Logprobs,
        TokenSource::Events,
    ] {
        let mut r = bare_record();
        r.token_source = source;
        assert_eq!(serde_json::to_value(source).unwrap(), source.as_str());
        check(&v, &r);
    }
    let mut r = full_record();
    for class in [
        EventClass::Empty,
        EventClass::Done,
        EventClass::Usage,
        EventClass::Role,
        EventClass::Tool,
        EventClass::Reasoning,
        EventClass::Content,
        EventClass::Error,
    ] {
        r.reads.push(r.t_done_ns, 0, class, 1, 1);
        assert_eq!(serde_json::to_value(class).unwrap(), class.as_str());
    }
    check(&v, &r);
}

#[test]
fn an_unknown_field_of_a_record_is_refused() {
    let full = serde_json::to_value(full_record()).unwrap();
    check_closed(&validator(REQUEST_SCHEMA), &full, &[]);
}

#[test]
fn the_schemas_name_exactly_the_fields_that_are_written() {
    let fields = |v: &Value| -> Vec<String> {
        let mut keys: Vec<String> = v.as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys
    };
    let request: Value = serde_json::from_str(REQUEST_SCHEMA).unwrap();
    let record = serde_json::to_value(full_record()).unwrap();
    assert_eq!(fields(&request["properties"]), fields(&record));
    for part in ["failure", "usage", "reads"] {
        assert_eq!(
            fields(&request["properties"][part]["properties"]),
            fields(&record[part])
        );
    }
    let run: Value = serde_json::from_str(RUN_SCHEMA).unwrap();
    let full = serde_json::to_value(full_manifest()).unwrap();
    assert_eq!(fields(&run["properties"]), fields(&full));
    let cell = &full["cells"][0];
    assert_eq!(fields(&run["$defs"]["cell"]["properties"]), fields(cell));
    for part in ["server", "client", "verdict"] {
        assert_eq!(
            fields(&run["$defs"][part]["properties"]),
            fields(&cell[part])
        );
    }
}

#[test]
fn a_field_of_the_wrong_kind_is_refused() {
    let v = validator(REQUEST_SCHEMA);
    for (at, bad) in [
        ("/outcome", json!("fine")),
        ("/t_done_ns", json!(1.5)),
        ("/t_done_ns", json!(-1)),
        ("/reads/class/0", json!("noise")),
        ("/reads/tokens/0", json!("1")),
        ("/input_len", json!("1024")),
    ] {
        let mut r = serde_json::to_value(full_record()).unwrap();
        *r.pointer_mut(at).unwrap() = bad;
        assert!(!v.is_valid(&r), "{at}");
    }
}

fn full_manifest() -> RunManifest {
    let mut m = manifest(&[CellStatus::Complete, CellStatus::Pending]);
    let histogram = HistogramDelta {
        count: 16.0,
        sum_s: 0.8,
        buckets: vec![(Some(0.1), 12.0), (None, 16.0)],
    };
    let note = Note::new("preempted", "2 requests were preempted");
    m.status = RunStatus::Complete;
    m.finished_unix_ns = Some(u64::MAX);
    m.environment.insert("cores".into(), json!(2));
    m.servers = vec![json!({"version": "0.32"})];
    m.notes = vec![note.clone()];
    let cell = &mut m.cells[0];
    cell.started_unix_ns = Some(1);
    cell.results = Some(
        json!({"completed": 16, "p99_tpot_ms": null, "nested": {}})
            .as_object()
            .unwrap()
            .clone(),
    );
    cell.server = Some(ServerDelta {
        unavailable: Some("404".into()),
        prefix_cache_queries: Some(1.0),
        spec_decode: Some(SpecDecode::default()),
        ttft: Some(histogram.clone()),
        itl: Some(histogram.clone()),
        queue: Some(histogram),
        ..ServerDelta::default()
    });
    cell.client = Some(ClientStats {
        timer_lag_p50_ms: Some(0.1),
        max_rss_bytes: Some(1 << 24),
        ..ClientStats::default()
    });
    cell.verdict = Some(Verdict {
        status: VerdictStatus::Flagged,
        reasons: vec![note.clone()],
        notes: vec![note],
    });
    m
}

#[test]
fn manifests_fit_the_schema() {
    let v = validator(RUN_SCHEMA);
    check(&v, &manifest(&[]));
    check(&v, &full_manifest());
    for status in [
        CellStatus::Pending,
        CellStatus::Running,
        CellStatus::Incomplete,
        CellStatus::Complete,
    ] {
        check(&v, &manifest(&[status]));
    }
    for load in [
        Load::Concurrency(4),
        Load::Rate {
            per_second: 0.4,
            burstiness: None,
            max_concurrency: None,
        },
        Load::Rate {
            per_second: 200.0,
            burstiness: Some(1.0),
            max_concurrency: Some(64),
        },
        Load::Trace {
            speedup: 2.0,
            max_concurrency: None,
        },
    ] {
        for cache in [
            CacheMode::Cold,
            CacheMode::Warm,
            CacheMode::Prefix(0.5),
            CacheMode::Workload,
        ] {
            let mut m = full_manifest();
            m.cells[0].spec.load = load;
            m.cells[0].spec.cache = cache;
            m.cells[1].spec.input_len = None;
            m.cells[1].spec.output_len = None;
            m.cells[1].spec.requests = None;
            m.cells[1].spec.duration_s = Some(60.0);
            m.gpus.count = None;
            check(&v, &m);
        }
    }
    for status in [
        VerdictStatus::Valid,
        VerdictStatus::Flagged,
        VerdictStatus::Invalid,
    ] {
        let mut m = full_manifest();
        m.cells[0].verdict.as_mut().unwrap().status = status;
        check(&v, &m);
    }
    let mut m = full_manifest();
    m.cells[0].server = Some(ServerDelta::default());
    check(&v, &m);
}

#[test]
fn an_unknown_field_of_the_manifest_is_refused() {
    let open = ["/plan", "/environment", "/servers/", "/cells/0/results"];
    let full = serde_json::to_value(full_manifest()).unwrap();
    check_closed(&validator(RUN_SCHEMA), &full, &open);
}

#[test]
fn another_schema_version_is_refused() {
    let mut m = manifest(&[]);
    m.schema_version += 1;
    let value = serde_json::to_value(m).unwrap();
    assert!(!validator(RUN_SCHEMA).is_valid(&value));
}

/// Every field says what it is: a property without a description is an unfinished schema.
#[test]
fn every_property_is_described() {
    fn walk(schema: &Value, at: &str) {
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            for (name, property) in properties {
                let described = property.get("description").is_some()
                    || property.get("$ref").is_some_and(|r| {
                        ["#/$defs/load", "#/$defs/cache", "#/$defs/server"]
                            .iter()
                            .chain(&["#/$defs/client", "#/$defs/verdict"])
                            .any(|d| r == d)
                    });
                // The three kinds of load and the prefix share are described where they are chosen.
                let chosen = ["rate", "trace", "prefix"].contains(&name.as_str());
                assert!(described || chosen, "{at}/{name}");
            }
        }
        match schema {
            Value::Object(map) => map.iter().for_each(|(k, v)| walk(v, &format!("{at}/{k}"))),
            Value::Array(items) => items.iter().for_each(|v| walk(v, at)),
            _ => {}
        }
    }
    for schema in [RUN_SCHEMA, REQUEST_SCHEMA] {
        walk(&serde_json::from_str(schema).unwrap(), "");
    }
}
